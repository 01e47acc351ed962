// The filters of one row by one block: each filter is a cut in an order of the tokens, found by
// radix selection over masses, so that nothing is sorted and the tokens may lie anywhere: in a
// short list or in the whole row. Device code only.

#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/sample_work.cuh"

namespace weft::kernels::cuda {

inline constexpr uint32_t kSelectThreads = 1024;
// One bin a thread.
inline constexpr int kSelectBits = 10;
// Ids in the low bits of order keys.
inline constexpr int kIdBits = 24;
static_assert(kSamplerVocabularyMax <= 1u << kIdBits);
inline constexpr uint64_t kKeepAll = ~uint64_t{0};

struct SelectScratch {
  // 64-bit masses as two words, for the atomics of shared memory.
  uint32_t low[kSelectThreads];
  uint32_t high[kSelectThreads];
  uint32_t count[kSelectThreads];
  uint64_t warps[3][kWarp];
  uint64_t edge_below;
  uint32_t edge_bin;
  uint32_t edge_count;
};

// The row's tokens, above -infinity; visit(score, id) by all threads in any order.
struct ListTokens {
  const Candidate* list;
  uint32_t count;

  template <typename Visit>
  __device__ __forceinline__ void ForEach(Visit visit) const {
    for (uint32_t i = threadIdx.x; i < count; i += kSelectThreads) {
      const uint2 both = reinterpret_cast<const uint2*>(list)[i];
      visit(__uint_as_float(both.x), both.y);
    }
  }
};
struct RowTokens {
  const float* scores;
  uint32_t count;

  template <typename Visit>
  __device__ __forceinline__ void ForEachQuad(Visit visit) const {
#pragma unroll 2
    for (uint32_t id = threadIdx.x * 4; id < count; id += kSelectThreads * 4) {
      visit(LoadScores(scores, id, count), id);
    }
  }
  template <typename Visit>
  __device__ __forceinline__ void ForEach(Visit visit) const {
    ForEachQuad([&](float4 x, uint32_t id) {
      if (x.x > -kInfinity) visit(x.x, id);
      if (x.y > -kInfinity) visit(x.y, id + 1);
      if (x.z > -kInfinity) visit(x.z, id + 2);
      if (x.w > -kInfinity) visit(x.w, id + 3);
    });
  }
};

// By descending score, or by closeness of the information content to the entropy.
enum class Order { kScore, kTypical };

// What is left of the row: the tokens with both keys up to the cuts. The same in all threads.
struct Survivors {
  float temperature;
  // Largest score among them.
  float best;
  uint64_t score_cut = kKeepAll;
  uint64_t typical_cut = kKeepAll;
  // Of the distribution that typical-p looked at, and its best score.
  float typical_best = 0;
  float log_total = 0;
  float entropy = 0;

  template <Order kOrder>
  __device__ __forceinline__ uint64_t KeyOf(float x, uint32_t id) const {
    uint32_t key = ~Ordered(x);
    if constexpr (kOrder == Order::kTypical) {
      const float log_probability =
          __fsub_rn(__fdiv_rn(__fsub_rn(x, typical_best), temperature), log_total);
      key = __float_as_uint(fabsf(__fsub_rn(-log_probability, entropy)));
    }
    return static_cast<uint64_t>(key) << kIdBits | id;
  }
  __device__ __forceinline__ bool Has(float x, uint32_t id) const {
    if (KeyOf<Order::kScore>(x, id) > score_cut) return false;
    return typical_cut == kKeepAll || KeyOf<Order::kTypical>(x, id) <= typical_cut;
  }
  __device__ __forceinline__ float WeightOf(float x) const { return Weight(x, best, temperature); }
};

// Every thread gets the sum over the threads before it. `warps`: 32 words, free again after the
// next barrier.
__device__ __forceinline__ uint64_t BlockPrefix64(uint64_t x, uint64_t* warps) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  uint64_t sum = x;
#pragma unroll
  for (uint32_t offset = 1; offset < kWarp; offset *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, static_cast<unsigned long long>(sum), offset);
    if (lane >= offset) sum += other;
  }
  if (lane == kWarp - 1) warps[warp] = sum;
  __syncthreads();
  return WarpSum64(lane < warp ? warps[lane] : 0) + sum - x;
}

// Finds the bin in which the mass reaches `target`; false when none does.
__device__ __forceinline__ bool FindEdge(SelectScratch& scratch, uint64_t below, uint64_t target) {
  const uint32_t bin = threadIdx.x;
  const uint64_t mass = static_cast<uint64_t>(scratch.high[bin]) << 32 | scratch.low[bin];
  if (bin == 0) scratch.edge_bin = kSelectThreads;
  // Its barrier comes after the store above.
  const uint64_t before = below + BlockPrefix64(mass, scratch.warps[0]);
  if (before < target && before + mass >= target) {
    scratch.edge_bin = bin;
    scratch.edge_below = before;
    scratch.edge_count = scratch.count[bin];
  }
  __syncthreads();
  return scratch.edge_bin < kSelectThreads;
}

// The cut that keeps, in the order, each token before which the mass of the survivors has not
// reached `target` (at least 1). kCount: every token has mass 1.
template <Order kOrder, bool kCount, typename Tokens>
__device__ __forceinline__ uint64_t FindCut(const Tokens& tokens, const Survivors& survivors,
                                            uint64_t target, SelectScratch& scratch) {
  // Keys from `first` to first + span are looked at; those before them weigh `below`.
  uint64_t first = 0;
  uint64_t span = kKeepAll >> (64 - 32 - kIdBits);
  if constexpr (kOrder == Order::kScore) {
    first = survivors.KeyOf<Order::kScore>(survivors.best, 0);
    span -= first;
  }
  uint64_t below = 0;
  for (;;) {
    const int shift = max(0, 64 - __clzll(static_cast<long long>(span)) - kSelectBits);
    scratch.low[threadIdx.x] = 0;
    scratch.high[threadIdx.x] = 0;
    scratch.count[threadIdx.x] = 0;
    __syncthreads();
    tokens.ForEach([&](float x, uint32_t id) {
      const uint64_t key = survivors.KeyOf<kOrder>(x, id);
      if (key < first || key - first > span || !survivors.Has(x, id)) return;
      const uint32_t bin = static_cast<uint32_t>((key - first) >> shift);
      atomicAdd(&scratch.count[bin], 1u);
      const uint64_t mass = kCount ? 1 : Mass(survivors.WeightOf(x));
      const uint32_t low = static_cast<uint32_t>(mass);
      const uint32_t old = atomicAdd(&scratch.low[bin], low);
      const uint32_t high = static_cast<uint32_t>(mass >> 32) + (old + low < old ? 1 : 0);
      if (high > 0) atomicAdd(&scratch.high[bin], high);
    });
    __syncthreads();
    if (!FindEdge(scratch, below, target)) return kKeepAll;
    below = scratch.edge_below;
    first += static_cast<uint64_t>(scratch.edge_bin) << shift;
    span = (uint64_t{1} << shift) - 1;
    const bool single = scratch.edge_count == 1;
    __syncthreads();
    if (shift == 0 || single) return first + span;
  }
}

struct Totals {
  uint64_t mass;
  // Mass times distance from the best score, in temperatures.
  uint64_t distance;
};
// Smaller units than Mass: distances reach far.
inline constexpr float kDistanceScale = 0x1p34f;

template <typename Tokens>
__device__ __forceinline__ Totals TotalsOf(const Tokens& tokens, const Survivors& survivors,
                                           SelectScratch& scratch) {
  uint64_t mass = 0;
  uint64_t distance = 0;
  tokens.ForEach([&](float x, uint32_t id) {
    if (!survivors.Has(x, id)) return;
    const float weight = survivors.WeightOf(x);
    mass += Mass(weight);
    const float away = __fdiv_rn(__fsub_rn(survivors.best, x), survivors.temperature);
    // Infinity times nothing is nothing here.
    if (weight > 0) distance += __float2ull_rn(weight * away * kDistanceScale);
  });
  const Totals totals = {BlockSum64(mass, scratch.warps[0]),
                         BlockSum64(distance, scratch.warps[1])};
  __syncthreads();
  return totals;
}

template <typename Tokens>
__device__ __forceinline__ float BestOf(const Tokens& tokens, const Survivors& survivors,
                                        SelectScratch& scratch) {
  uint64_t best = 0;
  tokens.ForEach([&](float x, uint32_t id) {
    if (survivors.Has(x, id)) best = BestKeyOr(best, x, 0);
  });
  best = BlockMax64(best, scratch.warps[0]);
  __syncthreads();
  return ScoreOfBest(best);
}

template <typename Tokens>
__device__ __forceinline__ void KeepTypical(const Tokens& tokens, float typical_p,
                                            Survivors* survivors, SelectScratch& scratch) {
  const Totals totals = TotalsOf(tokens, *survivors, scratch);
  const double mass = static_cast<double>(totals.mass) / kMassScale;
  const double distance = static_cast<double>(totals.distance) / kDistanceScale;
  const double log_total = log(mass);
  survivors->typical_best = survivors->best;
  survivors->log_total = static_cast<float>(log_total);
  // Minus the mean log-probability.
  survivors->entropy = static_cast<float>(distance / mass + log_total);
  survivors->typical_cut = FindCut<Order::kTypical, false>(
      tokens, *survivors, MassTarget(typical_p, totals.mass), scratch);
  survivors->best = BestOf(tokens, *survivors, scratch);
}

// The best of the survivors with at least `share` of the best one's weight (0: all) by logit /
// temperature + noise: this thread's.
__device__ __forceinline__ uint64_t DrawOf(const ListTokens& tokens, const Survivors& survivors,
                                           const SamplingRow& row, float share) {
  uint64_t key = 0;
  tokens.ForEach([&](float x, uint32_t id) {
    if (!survivors.Has(x, id)) return;
    if (share > 0 && !(survivors.WeightOf(x) >= share)) return;
    const PhiloxBlock words = PhiloxTokens(row.seed, row.position, id / 4);
    const uint32_t word = WordOf(words, id % 4);
    key = BestKeyOr(key, DrawScore(x, row.temperature, word), id);
  });
  return key;
}
__device__ __forceinline__ uint64_t DrawOf(const RowTokens& tokens, const Survivors& survivors,
                                           const SamplingRow& row, float share) {
  uint64_t key = 0;
  tokens.ForEachQuad([&](float4 x, uint32_t quad_id) {
    auto alive = [&](float score, uint32_t id) {
      return score > -kInfinity && MayWin(score, survivors.best, row.temperature, 0) &&
             survivors.Has(score, id) && !(share > 0 && !(survivors.WeightOf(score) >= share));
    };
    const bool alive0 = alive(x.x, quad_id);
    const bool alive1 = alive(x.y, quad_id + 1);
    const bool alive2 = alive(x.z, quad_id + 2);
    const bool alive3 = alive(x.w, quad_id + 3);
    if (!(alive0 || alive1 || alive2 || alive3)) return;
    const PhiloxBlock words = PhiloxTokens(row.seed, row.position, quad_id / 4);
    auto consider = [&](bool is_alive, float score, uint32_t word, uint32_t id) {
      if (is_alive) key = BestKeyOr(key, DrawScore(score, row.temperature, word), id);
    };
    consider(alive0, x.x, words.lane[0], quad_id);
    consider(alive1, x.y, words.lane[1], quad_id + 1);
    consider(alive2, x.z, words.lane[2], quad_id + 2);
    consider(alive3, x.w, words.lane[3], quad_id + 3);
  });
  return key;
}

// All filters and the draw. `best`: of the row; `total`: the row's mass.
template <typename Tokens>
__device__ __forceinline__ uint32_t FilterAndDraw(const Tokens& tokens, const SamplingRow& row,
                                                  uint32_t vocabulary, float best, uint64_t total,
                                                  SelectScratch& scratch) {
  Survivors survivors;
  survivors.temperature = row.temperature;
  survivors.best = best;
  const bool top_k = UsesTopK(row, vocabulary);
  if (top_k) {
    survivors.score_cut = FindCut<Order::kScore, true>(tokens, survivors, row.top_k, scratch);
  }
  if (row.typical_p < 1) KeepTypical(tokens, row.typical_p, &survivors, scratch);
  if (row.top_p < 1) {
    if (top_k || row.typical_p < 1) total = TotalsOf(tokens, survivors, scratch).mass;
    const uint64_t cut =
        FindCut<Order::kScore, false>(tokens, survivors, MassTarget(row.top_p, total), scratch);
    // Below a cut already there, or nothing was left to cut.
    survivors.score_cut = min(survivors.score_cut, cut);
  }
  const uint64_t key = DrawOf(tokens, survivors, row, row.min_p);
  return IdOfBest(BlockMax64(key, scratch.warps[0]));
}

}  // namespace weft::kernels::cuda

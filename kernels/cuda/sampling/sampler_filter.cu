// The sampler's second pass: the tokens of a filtered row that may survive, into a list, by a
// cluster of blocks a row. First the row's best and least score, then where needed a histogram of
// the distances from the best and the row's mass, then the list; the logits come from memory in the
// first step and from the L1 or L2 after that.

#include <cuda_runtime.h>

#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/sampling/sample_bins.cuh"
#include "kernels/cuda/sampling/sample_work.cuh"

namespace weft::kernels::cuda {
namespace {

// Fixed, so that a row's sums do not depend on the number of rows.
constexpr uint32_t kParts = 8;
constexpr uint32_t kFilterThreads = 512;
constexpr uint32_t kFilterWarps = kFilterThreads / kWarp;
// Quads of a part that lie beside each other are this many ids apart from the next ones.
constexpr uint32_t kPartStride = kParts * kFilterThreads * 4;
constexpr uint32_t kBinsPerThread = 2;
static_assert(kHistogramBins == kFilterThreads * kBinsPerThread);
// From this distance on Mass is 0: e^-29.5 < 2^-42.
constexpr float kMassDistance = 29.5f;
// Top-k up to here counts the threads' best tokens alone: at least k threads' best are in the list
// then, or all there are. Should the other tokens of these overflow the list (k threads of 32
// tokens cannot), the row takes the slow way.
constexpr uint32_t kBestsMax = 256;

// Sums over bins.
struct Prefix {
  uint32_t count;
  float mass;
};

struct FilterShared {
  uint32_t bins[kHistogramBins];
  // Maximum and minimum of each warp.
  float2 ranges[kFilterWarps];
  uint64_t mass;
  uint64_t scratch[kWarp];
  Prefix prefixes[kFilterWarps];
  uint32_t last_bin;
};

// What has to be counted to know the list's end.
enum class Count { kNothing, kBests, kTokens };

__device__ __forceinline__ Count CountOf(const SamplingRow& row, uint32_t vocabulary) {
  if (UsesTopK(row, vocabulary)) return row.top_k <= kBestsMax ? Count::kBests : Count::kTokens;
  return row.top_p < 1 ? Count::kTokens : Count::kNothing;
}

// The tokens of the block's part, four quads of each thread at a time by visit(quads, id of the
// first, kPartStride from quad to quad), -infinity behind the end; warps stay together.
template <typename Visit>
__device__ __forceinline__ void ForPart(const float* scores, uint32_t count, Visit visit) {
  const uint32_t offset = (blockIdx.x * kFilterThreads + threadIdx.x) * 4;
#pragma unroll 1
  for (uint32_t begin = 0; begin < count; begin += kTileQuads * kPartStride) {
    float4 quads[kTileQuads];
#pragma unroll
    for (uint32_t i = 0; i < kTileQuads; ++i) {
      quads[i] = LoadScores(scores, begin + i * kPartStride + offset, count);
    }
    visit(quads, begin + offset);
  }
}

// The maximum is +infinity also where there is NaN.
__device__ __forceinline__ Range RangeOfThread(const float* scores, uint32_t count) {
  Range range = {-kInfinity, kInfinity};
  bool valid = true;
  auto consider = [&range, &valid](float x) {
    if (x > -kInfinity) range.min = fminf(range.min, x);
    valid = valid && x < kInfinity;
  };
  ForPart(scores, count, [&](const float4* quads, uint32_t) {
#pragma unroll
    for (uint32_t i = 0; i < kTileQuads; ++i) {
      range.max = fmaxf(range.max, MaxOf(quads[i]));
      consider(quads[i].x);
      consider(quads[i].y);
      consider(quads[i].z);
      consider(quads[i].w);
    }
  });
  if (!valid) range.max = kInfinity;
  return range;
}

// Over the cluster, in every thread. Its barrier also makes visible what all blocks wrote before.
__device__ __forceinline__ Range RangeOfRow(Range range, FilterShared& shared) {
  range.max = WarpMax(range.max);
  range.min = -WarpMax(-range.min);
  const uint32_t lane = threadIdx.x % kWarp;
  if (lane == 0) shared.ranges[threadIdx.x / kWarp] = {range.max, range.min};
  ClusterArrive();
  ClusterWait();
#pragma unroll
  for (uint32_t i = 0; i < kParts * kFilterWarps / kWarp; ++i) {
    const uint32_t at = i * kWarp + lane;
    const uint2 both = ClusterLoad(&shared.ranges[at % kFilterWarps], at / kFilterWarps);
    range.max = fmaxf(range.max, __uint_as_float(both.x));
    range.min = fminf(range.min, __uint_as_float(both.y));
  }
  range.max = WarpMax(range.max);
  range.min = -WarpMax(-range.min);
  return range;
}

// Counts the part's tokens from `floor` on; returns the thread's mass with kMass.
template <bool kMass>
__device__ __forceinline__ uint64_t CountTokensOfPart(const float* scores, uint32_t vocabulary,
                                                      const Binning& binning, float floor,
                                                      FilterShared& shared) {
  const float mass_floor = binning.best - kMassDistance * binning.temperature;
  const Divider temperature = DividerOf(binning.temperature);
  uint64_t mass = 0;
  auto consider = [&](float x) {
    if (!(x >= floor)) return;
    // Not below for NaN, of infinite scores.
    if (kMass && !(x < mass_floor)) {
      mass += Mass(PolyExp(temperature.Quotient(__fsub_rn(x, binning.best))));
    }
    atomicAdd(&shared.bins[binning.BinOf(x)], 1u);
  };
  ForPart(scores, vocabulary, [&](const float4* quads, uint32_t) {
#pragma unroll
    for (uint32_t i = 0; i < kTileQuads; ++i) {
      if (!(MaxOf(quads[i]) >= floor)) continue;
      consider(quads[i].x);
      consider(quads[i].y);
      consider(quads[i].z);
      consider(quads[i].w);
    }
  });
  return mass;
}

// Every thread gets the sums over the bins of the threads before it.
__device__ __forceinline__ Prefix PrefixOf(uint32_t count, float mass, Prefix* scratch) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  Prefix sum = {count, mass};
#pragma unroll
  for (uint32_t offset = 1; offset < kWarp; offset *= 2) {
    const uint32_t other_count = __shfl_up_sync(kAllLanes, sum.count, offset);
    const float other_mass = __shfl_up_sync(kAllLanes, sum.mass, offset);
    if (lane < offset) continue;
    sum.count += other_count;
    sum.mass += other_mass;
  }
  if (lane == kWarp - 1) scratch[warp] = sum;
  Prefix before = {__shfl_up_sync(kAllLanes, sum.count, 1), __shfl_up_sync(kAllLanes, sum.mass, 1)};
  if (lane == 0) before = {0, 0};
  __syncthreads();
  for (uint32_t i = 0; i < warp; ++i) {
    before.count += scratch[i].count;
    before.mass += scratch[i].mass;
  }
  return before;
}

// What the last bin of the list has to reach: so many tokens, or so much mass up to it, or so
// little behind it. Masses are what the histogram says at least.
struct Wanted {
  uint32_t count;
  float mass;
  float mass_behind;
};
// `step`: width of a bin in temperatures, the logarithm of what its mass may be off by.
__device__ __forceinline__ Wanted WantedOf(const SamplingRow& row, uint64_t total,
                                           uint32_t vocabulary, float step) {
  if (UsesTopK(row, vocabulary)) return {row.top_k, kInfinity, -1.0f};
  // A little more, against the rounding of the sums.
  const float all = static_cast<float>(total) / kMassScale;
  const float behind = (1.0f - row.top_p - 2e-5f) * all * expf(-step) * 0.9999f;
  return {0xffffffffu, fmaxf(row.top_p * all * 1.0001f, 1e-20f), behind};
}

// The last bin of the list, from the histograms of all blocks.
__device__ __forceinline__ uint32_t LastBin(const SamplingRow& row, uint64_t total,
                                            uint32_t vocabulary, const Binning& binning,
                                            FilterShared& shared) {
  const uint32_t first = threadIdx.x * kBinsPerThread;
  uint2 counts = {0, 0};
#pragma unroll
  for (uint32_t rank = 0; rank < kParts; ++rank) {
    const uint2 other = ClusterLoad(&shared.bins[first], rank);
    counts.x += other.x;
    counts.y += other.y;
  }
  // Of a token at the far side of a bin; a bin's true mass is a little more.
  const float step = binning.scale > 0 ? 1.0f / (binning.scale * binning.temperature) : 0.0f;
  const float mass0 = static_cast<float>(counts.x) * expf(-step * static_cast<float>(first + 1));
  const float mass1 = static_cast<float>(counts.y) * expf(-step * static_cast<float>(first + 2));
  if (threadIdx.x == 0) shared.last_bin = kHistogramBins - 1;
  // Its barrier comes after the store above.
  Prefix sum = PrefixOf(counts.x + counts.y, mass0 + mass1, shared.prefixes);
  float all = 0;
#pragma unroll
  for (uint32_t i = 0; i < kFilterWarps; ++i) all += shared.prefixes[i].mass;
  const Wanted wanted = WantedOf(row, total, vocabulary, step);
  uint32_t last = kHistogramBins - 1;
  auto reached = [&] {
    return sum.count >= wanted.count || sum.mass >= wanted.mass ||
           all - sum.mass <= wanted.mass_behind;
  };
  sum.count += counts.x;
  sum.mass += mass0;
  const bool reached_first = reached();
  sum.count += counts.y;
  sum.mass += mass1;
  if (reached_first) {
    last = first;
  } else if (reached()) {
    last = first + 1;
  }
  last = __reduce_min_sync(kAllLanes, last);
  if (threadIdx.x % kWarp == 0) atomicMin(&shared.last_bin, last);
  __syncthreads();
  return shared.last_bin;
}

// Counts what the list's end depends on, over the cluster; the last bin. Sets *total with top-p
// alone.
__device__ __forceinline__ uint32_t CountedLastBin(const SamplingRow& row, const float* scores,
                                                   uint32_t vocabulary, const Binning& binning,
                                                   float floor, float thread_best, uint64_t* total,
                                                   FilterShared& shared) {
  const bool top_k = UsesTopK(row, vocabulary);
  uint64_t mass = 0;
  if (CountOf(row, vocabulary) == Count::kBests) {
    if (thread_best >= floor) atomicAdd(&shared.bins[binning.BinOf(thread_best)], 1u);
  } else if (top_k) {
    CountTokensOfPart<false>(scores, vocabulary, binning, floor, shared);
  } else {
    mass = CountTokensOfPart<true>(scores, vocabulary, binning, floor, shared);
  }
  if (!top_k) {
    mass = BlockSum64(mass, shared.scratch);
    if (threadIdx.x == 0) shared.mass = mass;
  }
  ClusterArrive();
  ClusterWait();
  if (!top_k) {
    const uint32_t lane = threadIdx.x % kWarp;
    uint2 part = {0, 0};
    if (lane < kParts) part = ClusterLoad(&shared.mass, lane);
    *total = WarpSum64(uint64_t{part.y} << 32 | part.x);
  }
  return LastBin(row, *total, vocabulary, binning, shared);
}

// Appends the part's tokens from `floor` on to the row's list.
__device__ __forceinline__ void ListPart(const float* scores, uint32_t vocabulary, float floor,
                                         uint32_t* listed, Candidate* list) {
  ForPart(scores, vocabulary, [&](const float4* quads, uint32_t first_id) {
    float best = -kInfinity;
#pragma unroll
    for (uint32_t i = 0; i < kTileQuads; ++i) best = fmaxf(best, MaxOf(quads[i]));
    if (!__any_sync(kAllLanes, best >= floor)) return;
    uint32_t count = 0;
#pragma unroll
    for (uint32_t i = 0; i < kTileQuads; ++i) {
      count += (quads[i].x >= floor ? 1 : 0) + (quads[i].y >= floor ? 1 : 0) +
               (quads[i].z >= floor ? 1 : 0) + (quads[i].w >= floor ? 1 : 0);
    }
    const uint32_t lane = threadIdx.x % kWarp;
    uint32_t end = count;
#pragma unroll
    for (uint32_t offset = 1; offset < kWarp; offset *= 2) {
      const uint32_t other = __shfl_up_sync(kAllLanes, end, offset);
      if (lane >= offset) end += other;
    }
    uint32_t begin = 0;
    if (lane == kWarp - 1) begin = atomicAdd(listed, end);
    uint32_t place = __shfl_sync(kAllLanes, begin, kWarp - 1) + end - count;
    auto append = [&](float x, uint32_t id) {
      if (!(x >= floor)) return;
      if (place < kCandidatesMax) list[place] = {x, id};
      ++place;
    };
#pragma unroll
    for (uint32_t i = 0; i < kTileQuads; ++i) {
      const uint32_t id = first_id + i * kPartStride;
      append(quads[i].x, id);
      append(quads[i].y, id + 1);
      append(quads[i].z, id + 2);
      append(quads[i].w, id + 3);
    }
  });
}

__global__ void __cluster_dims__(kParts, 1, 1) __launch_bounds__(kFilterThreads, 2)
    ListCandidates(const SamplerParams params, const SamplerWork work) {
  AllowNextKernel();
  WaitForEarlierKernels();
  __shared__ FilterShared shared;
  const uint32_t r = blockIdx.y;
  const SamplingRow& row = params.row_params[r];
  const uint32_t vocabulary = params.vocabulary;
  if (KindOf(row, params) != RowKind::kFiltered) return;
  const float* scores = ScoreRow(params, work, row, r);
  RowState& state = work.states[r];
  const bool leader = blockIdx.x == 0 && threadIdx.x == 0;
  for (uint32_t i = threadIdx.x; i < kHistogramBins; i += kFilterThreads) shared.bins[i] = 0;
  if (leader) state.candidates = 0;
  const Range thread_range = RangeOfThread(scores, vocabulary);
  const Range range = RangeOfRow(thread_range, shared);
  const bool whole_row = row.typical_p < 1 && !UsesTopK(row, vocabulary);
  uint64_t total = 0;
  // The same decisions in all blocks of the cluster.
  if (whole_row || !IsDistribution(range.max)) {
    ClusterArrive();
  } else {
    const Binning binning = BinningOf(range, row.temperature);
    const float least = LeastScore(range.min, range.max, [&](float x) { return binning.Has(x); });
    uint32_t last;
    if (CountOf(row, vocabulary) == Count::kNothing) {
      last = MinPBin(row, binning);
    } else {
      last =
          CountedLastBin(row, scores, vocabulary, binning, least, thread_range.max, &total, shared);
    }
    ClusterArrive();
    const float floor =
        LeastScore(least, range.max, [&](float x) { return binning.BinOf(x) <= last; });
    ListPart(scores, vocabulary, floor, &state.candidates,
             work.candidates + size_t{r} * kCandidatesMax);
  }
  if (leader) {
    state.total = total;
    state.best = range.max;
    state.whole_row = whole_row ? 1 : 0;
  }
  // Nobody reads this block's shared memory any more.
  ClusterWait();
}

}  // namespace

cudaError_t LaunchFilter(const SamplerParams& params, const SamplerWork& work,
                         cudaStream_t stream) {
  return LaunchKernel(ListCandidates, dim3(kParts, params.rows), kFilterThreads, 0, true, stream,
                      params, work);
}

}  // namespace weft::kernels::cuda

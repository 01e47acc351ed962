// The filters of a row whose list is short, by one block: the list sorted, a token a thread, and
// every filter a prefix of it. Gives what sample_select.cuh gives. Device code only.

#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/sample_select.cuh"

namespace weft::kernels::cuda {

inline constexpr uint32_t kShortList = kSelectThreads;

// Typical-p orders tokens in another way.
__device__ __forceinline__ bool IsShort(const SamplingRow& row, uint32_t candidates) {
  return candidates <= kShortList && !(row.typical_p < 1);
}

// Bitonic sort of the block's first `count` keys, ascending, the others being kKeepAll. Partners
// of one warp exchange by shuffles, others by way of `places` (two rooms in turn, so that a step
// takes one barrier: a warp may be one step behind, never two).
__device__ __forceinline__ uint64_t SortedKey(uint64_t key, uint32_t count,
                                              uint64_t (*places)[kSelectThreads]) {
  const uint32_t i = threadIdx.x;
  uint32_t room = 0;
#pragma unroll 1
  for (uint32_t size = 2; size < 2 * count; size *= 2) {
#pragma unroll 1
    for (uint32_t apart = size / 2; apart > 0; apart /= 2) {
      uint64_t other = key;
      if (apart >= kWarp) {
        places[room][i] = key;
        __syncthreads();
        other = places[room][i ^ apart];
        room ^= 1;
      } else if (i / kWarp * kWarp < 2 * count) {
        // Warps behind hold no keys at any step: 2 * count is above the power of two.
        other = __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(key), apart);
      }
      const bool ascending = (i & size) == 0;
      const bool lower = (i & apart) == 0;
      if ((other < key) == (ascending == lower)) key = other;
    }
  }
  return key;
}

// The row's token. `total`: the row's mass, where nothing is in front of top-p.
__device__ __forceinline__ uint32_t DrawOfShortList(const Candidate* list, uint32_t count,
                                                    const SamplingRow& row, uint32_t vocabulary,
                                                    float best, uint64_t total,
                                                    SelectScratch& scratch,
                                                    uint64_t (*places)[kSelectThreads]) {
  Survivors survivors;
  survivors.temperature = row.temperature;
  survivors.best = best;
  uint64_t key = kKeepAll;
  if (threadIdx.x < count) {
    const uint2 both = reinterpret_cast<const uint2*>(list)[threadIdx.x];
    key = survivors.KeyOf<Order::kScore>(__uint_as_float(both.x), both.y);
  }
  key = SortedKey(key, count, places);
  const bool top_k = UsesTopK(row, vocabulary);
  bool alive = threadIdx.x < (top_k ? min(count, row.top_k) : count);
  const float x = alive ? FromOrdered(~static_cast<uint32_t>(key >> kIdBits)) : -kInfinity;
  const uint32_t id = static_cast<uint32_t>(key) & ((1u << kIdBits) - 1);
  const float weight = alive ? survivors.WeightOf(x) : 0.0f;
  if (row.top_p < 1) {
    const uint64_t mass = Mass(weight);
    const uint64_t before = BlockPrefix64(mass, scratch.warps[0]);
    if (top_k) total = BlockSum64(mass, scratch.warps[1]);
    alive = alive && before < MassTarget(row.top_p, total);
  }
  if (row.min_p > 0) alive = alive && weight >= row.min_p;
  uint64_t drawn = 0;
  if (alive) {
    const PhiloxBlock words = PhiloxTokens(row.seed, row.position, id / 4);
    drawn = BestKeyOr(0, DrawScore(x, row.temperature, WordOf(words, id % 4)), id);
  }
  return IdOfBest(BlockMax64(drawn, scratch.warps[2]));
}

}  // namespace weft::kernels::cuda

// How the scores of a filtered row map to the bins of its histogram, and the search for the score
// at which something begins. Device code only.

#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/sample_work.cuh"

namespace weft::kernels::cuda {

inline constexpr uint32_t kHistogramBins = 1024;
// Temperatures below MayWin's distance that lists still reach: what lies deeper can neither win nor
// move a sum (weight below e^-32).
inline constexpr float kReserve = 13.0f;
inline constexpr float kDistanceMax = 33.0f;

struct Range {
  float max;
  // Of the scores above -infinity; +infinity without any.
  float min;
};

// The least score above -infinity, from `least` to `best`, that is `wanted`; this is true from some
// score on and taken for granted of `best`. The same in all lanes of a warp.
template <typename Wanted>
__device__ __forceinline__ float LeastScore(float least, float best, Wanted wanted) {
  uint32_t low = max(Ordered(least), Ordered(-kInfinity) + 1);
  uint32_t high = Ordered(best);
  while (low < high) {
    // Lanes look at `step` scores apart from `low` on, the last at `high` or before.
    const uint32_t step = (high - low) / kWarp + 1;
    const uint32_t distance = min(threadIdx.x % kWarp * step, high - low);
    const bool hit = low + distance == high || wanted(FromOrdered(low + distance));
    const uint32_t hits = __ballot_sync(kAllLanes, hit);
    if (hits == 0) {
      low = min(low + (kWarp - 1) * step + 1, high);
      continue;
    }
    const uint32_t first = __ffs(static_cast<int>(hits)) - 1;
    high = min(low + first * step, high);
    if (first > 0) low += (first - 1) * step + 1;
  }
  return FromOrdered(high);
}

// How a row's scores map to bins.
struct Binning {
  float best;
  float temperature;
  // Bins per unit of score.
  float scale;

  __device__ __forceinline__ bool Has(float x) const {
    return MayWin(x, best, temperature, kReserve);
  }
  // Grows with the distance.
  __device__ __forceinline__ uint32_t BinOf(float x) const {
    const float bin =
        fminf(__fmul_rn(__fsub_rn(best, x), scale), static_cast<float>(kHistogramBins - 1));
    // Cut to an integer in the low bits: a conversion takes four times as long.
    return __float_as_uint(__fadd_rz(bin, 0x1p23f)) % kHistogramBins;
  }
};

__device__ __forceinline__ Binning BinningOf(const Range& range, float temperature) {
  const float width = fminf(range.max - range.min, kDistanceMax * temperature);
  // NaN or infinite for flat or empty rows: then everything is in bin 0.
  const float scale = static_cast<float>(kHistogramBins) / width;
  return {range.max, temperature, scale > 0 && scale < kInfinity ? scale : 0.0f};
}

// The bin up to which min-p alone goes.
__device__ __forceinline__ uint32_t MinPBin(const SamplingRow& row, const Binning& binning) {
  const float distance = -logf(row.min_p) * row.temperature;
  const float bin = fmaxf(distance, 0.0f) * binning.scale * 1.0001f + 1.0f;
  return static_cast<uint32_t>(fminf(bin, static_cast<float>(kHistogramBins - 1)));
}

}  // namespace weft::kernels::cuda

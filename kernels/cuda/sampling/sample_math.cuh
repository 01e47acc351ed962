// Arithmetic of sampling on the device: rounded step by step like the CPU's (no contraction), and
// keys that sort like scores. Device code only.

#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace weft::kernels::cuda {

inline constexpr float kInfinity = __builtin_huge_valf();

// Outer bounds of GumbelNoise: -log(-log u) over u in [2^-24, 1 - 2^-24] is in [-2.812, 16.636].
inline constexpr float kNoiseMin = -2.9f;
inline constexpr float kNoiseMax = 16.7f;

// exp as kernels/cpu/impl/math.inc.h has it, to the bit.
__device__ __forceinline__ float PolyExp(float x) {
  const float kMagic = 12582912.0f;
  const float shifted = __fmaf_rn(x, 1.44269504088896341f, kMagic);
  const float n = __fsub_rn(shifted, kMagic);
  float r = __fmaf_rn(n, -0.693359375f, x);
  r = __fmaf_rn(n, 2.12194440e-4f, r);
  float y = 1.9875691500e-4f;
  y = __fmaf_rn(y, r, 1.3981999507e-3f);
  y = __fmaf_rn(y, r, 8.3334519073e-3f);
  y = __fmaf_rn(y, r, 4.1665795894e-2f);
  y = __fmaf_rn(y, r, 1.6666665459e-1f);
  y = __fmaf_rn(y, r, 5.0000001201e-1f);
  y = __fadd_rn(__fmaf_rn(y, __fmul_rn(r, r), r), 1.0f);
  y = __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
  if (x < -87.3365447505f) y = 0.0f;
  if (x > 88.7228317261f) y = kInfinity;
  return y;
}

__device__ __forceinline__ float Weight(float x, float best, float temperature) {
  return PolyExp(__fdiv_rn(__fsub_rn(x, best), temperature));
}

// Division by one divisor many times, by multiplications: __fdiv_rn's result to the bit for
// quotients of normal size (the second correction of a faithful quotient rounds right, Markstein
// 1990), and near 0 what has the same exponential.
struct Divider {
  float divisor;
  float inverse;
  // Whether intermediates keep clear of the ends of float32.
  bool safe;

  // For quotients up to 2^40 or so.
  __device__ __forceinline__ float Quotient(float x) const {
    if (!safe) return __fdiv_rn(x, divisor);
    float q = __fmul_rn(x, inverse);
    q = __fmaf_rn(__fmaf_rn(-q, divisor, x), inverse, q);
    return __fmaf_rn(__fmaf_rn(-q, divisor, x), inverse, q);
  }
};

__device__ __forceinline__ Divider DividerOf(float divisor) {
  return {divisor, __fdiv_rn(1.0f, divisor), divisor > 0x1p-40f && divisor < 0x1p40f};
}

// Weights as integers: sums are the same in any order. 2^23 tokens of weight 1 take 63 bits.
inline constexpr float kMassScale = 0x1p40f;
__device__ __forceinline__ uint64_t Mass(float weight) {
  return static_cast<uint64_t>(__float2ull_rn(weight * kMassScale));
}

// The least integer that is not below share * total, at least 1.
__device__ __forceinline__ uint64_t MassTarget(float share, uint64_t total) {
  const double target = ceil(static_cast<double>(share) * static_cast<double>(total));
  return target < 1.0 ? 1 : static_cast<uint64_t>(target);
}

// Sorts like the float; -0 is 0.
__device__ __forceinline__ uint32_t Ordered(float x) {
  const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}
__device__ __forceinline__ float FromOrdered(uint32_t ordered) {
  return __uint_as_float(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

// The largest is the best score, of equal ones that with the lowest id; 0 is none. Above all of
// them is the key of a row that is no distribution, which stands for id 0 too.
inline constexpr uint64_t kInvalidKey = ~uint64_t{0};
__device__ __forceinline__ uint64_t BestKey(float score, uint32_t id) {
  return static_cast<uint64_t>(Ordered(score)) << 32 | (0xffffffffu - id);
}
__device__ __forceinline__ uint32_t IdOfBest(uint64_t key) {
  return key == 0 ? 0 : 0xffffffffu - static_cast<uint32_t>(key);
}
__device__ __forceinline__ float ScoreOfBest(uint64_t key) {
  return key == 0 ? -kInfinity : FromOrdered(static_cast<uint32_t>(key >> 32));
}
__device__ __forceinline__ uint64_t BestKeyOr(uint64_t best, float score, uint32_t id) {
  // False for NaN too.
  if (!(score > -kInfinity)) return best;
  const uint64_t key = BestKey(score, id);
  return key > best ? key : best;
}

// False when no noise lifts x over the best logit, whatever that gets. Rounding is monotone, so
// equal rounded sums count as "may".
__device__ __forceinline__ bool MayWin(float x, float best, float temperature, float reserve) {
  return !(__fadd_rn(__fdiv_rn(x, temperature), kNoiseMax) <
           __fadd_rn(__fdiv_rn(best, temperature), kNoiseMin - reserve));
}

// A lane of the four, without an array in local memory.
__device__ __forceinline__ uint32_t WordOf(const PhiloxBlock& words, uint32_t lane) {
  const uint32_t low = lane == 0 ? words.lane[0] : words.lane[1];
  const uint32_t high = lane == 2 ? words.lane[2] : words.lane[3];
  return lane < 2 ? low : high;
}

__device__ __forceinline__ float DrawScore(float x, float temperature, uint32_t word) {
  return __fadd_rn(__fdiv_rn(x, temperature), GumbelNoise(word));
}

}  // namespace weft::kernels::cuda

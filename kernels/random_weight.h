// Small random numbers that stand for a model's weights where only shapes and speed matter: uniform
// in [-0.02 * sqrt(3), 0.02 * sqrt(3)), deviation 0.02, each a hash of (key, row, column), so that
// a slice of a matrix holds the same numbers as the whole. Host and device give equal bits. Pure
// functions, any thread; not for sampling (kernels/philox.h).

#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace weft::kernels {

inline constexpr float kRandomWeightMax = 0.0346410162f;

// Finalisers of MurmurHash3: every bit of the result depends on every bit of `x`.
WEFT_HOST_DEVICE uint32_t MixBits(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
WEFT_HOST_DEVICE uint64_t MixBits64(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// The key of matrix `matrix` of a model.
WEFT_HOST_DEVICE uint64_t RandomWeightKey(uint64_t seed, uint32_t matrix) {
  return MixBits64(MixBits64(seed) + matrix);
}

// What RandomWeight takes for a row of that matrix.
WEFT_HOST_DEVICE uint32_t RandomWeightRow(uint64_t key, uint32_t row) {
  return static_cast<uint32_t>(MixBits64(key + row) >> 32);
}

// The number in column `column`. All steps but the last multiplication are exact.
WEFT_HOST_DEVICE float RandomWeight(uint32_t row_bits, uint32_t column) {
  const uint32_t bits = MixBits(row_bits ^ column) >> 8;
  return PhiloxMul(PhiloxAdd(PhiloxMul(static_cast<float>(bits), 0x1p-23f), -1.0f),
                   kRandomWeightMax);
}

}  // namespace weft::kernels

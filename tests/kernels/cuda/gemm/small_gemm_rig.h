// What the tests of products with few rows share: many random weights.

#pragma once

#include <array>
#include <random>
#include <vector>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {

using Half = __nv_bfloat16;

// Multiples of 2^-6 in [-2, 2) times `scale`, a power of two: exact in bf16, and cheap to make many
// of.
inline std::vector<Half> RandomHalves(std::mt19937_64& random, size_t count, float scale = 1.0f) {
  std::array<Half, 256> table;
  for (int i = 0; i < 256; ++i) table[i] = __float2bfloat16_rn((i - 128) / 64.0f * scale);
  std::vector<Half> out(count);
  uint64_t bits = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % 8 == 0) bits = random();
    out[i] = table[bits & 0xff];
    bits >>= 8;
  }
  return out;
}

}  // namespace weft::kernels::cuda::testing

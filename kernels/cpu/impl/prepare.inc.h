// Activations for Linear: rounding, padding, block sums (contract in kernels.h). `kStoreWords`:
// bf16 rows are kept as bf16 (for dot products of pairs), else as the rounded float32.

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

template <bool kStoreWords>
void PrepareActivations(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end,
                        const Activations& out) {
  const int64_t blocks = (out.inputs + kBlockInputs - 1) / kBlockInputs;
  const int64_t row_bytes = blocks * kBlockInputs * 4;
  const bool round = out.type == ActivationType::kBf16;
  for (int64_t r = row_begin; r < row_end; ++r) {
    const float* source = x + r * x_stride;
    uint8_t* values = out.values + r * row_bytes;
    float* sums = out.block_sums + r * blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      Floats halves[2];
      for (int h = 0; h < 2; ++h) {
        const int64_t k = b * kBlockInputs + h * kLanes;
        const int64_t left = out.inputs - k;
        halves[h] = left >= kLanes ? Load(source + k) : LoadN(source + k, left < 0 ? 0 : left);
        if (round) {
          const Ints words = RoundToBf16(halves[h]);
          halves[h] = AsFloats(ShiftLeft<16>(words));
          if (kStoreWords) StoreWords(reinterpret_cast<uint16_t*>(values) + k, words);
        }
        if (!round || !kStoreWords) Store(reinterpret_cast<float*>(values) + k, halves[h]);
      }
      sums[b] = SumLanes(Add(halves[0], halves[1]));
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cpu

// The kernels on AVX-512 with BF16.

#include <cstdint>

#include "kernels/cpu/impl/tables.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/impl/vec_avx512.inc.h"
// clang-format off
#include "kernels/cpu/impl/math.inc.h"
#include "kernels/cpu/impl/prepare.inc.h"
#include "kernels/cpu/impl/decode_f32.inc.h"
#include "kernels/cpu/impl/linear.inc.h"
#include "kernels/cpu/impl/decode_bf16_avx512.inc.h"
#include "kernels/cpu/impl/rows.inc.h"
#include "kernels/cpu/impl/kv_append.inc.h"
#include "kernels/cpu/impl/attention.inc.h"
#include "kernels/cpu/impl/sampling.inc.h"
#include "kernels/cpu/impl/random.inc.h"
#include "kernels/cpu/impl/table.inc.h"
// clang-format on

namespace weft::kernels::cpu {
namespace {

template <WeightType kType>
void LinearPairsOf(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                   int64_t tile_end, float* y, int64_t y_stride) {
  LinearBy<kType, PairDecoder<kType>>(matrix, x, tile_begin, tile_end, y, y_stride);
}

// Pairs of bf16 where activations are bf16, else float32.
void Linear(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin, int64_t tile_end,
            float* y, int64_t y_stride) {
  if (x.type == ActivationType::kBf16) {
    switch (matrix.type) {
      case WeightType::kBf16:
        return LinearPairsOf<WeightType::kBf16>(matrix, x, tile_begin, tile_end, y, y_stride);
      case WeightType::kQ8_0:
        return LinearPairsOf<WeightType::kQ8_0>(matrix, x, tile_begin, tile_end, y, y_stride);
      case WeightType::kQ4_0:
        return LinearPairsOf<WeightType::kQ4_0>(matrix, x, tile_begin, tile_end, y, y_stride);
      case WeightType::kQ4_1:
        return LinearPairsOf<WeightType::kQ4_1>(matrix, x, tile_begin, tile_end, y, y_stride);
      case WeightType::kF32:
      case WeightType::kF16:
        // ActivationFor never pairs these with bf16 rows.
        __builtin_trap();
    }
  }
  LinearF32(matrix, x, tile_begin, tile_end, y, y_stride);
}

}  // namespace

const Kernels& Avx512Bf16Kernels() {
  static constexpr Kernels kTable = MakeTable(Isa::kAvx512Bf16, PrepareActivations<true>, Linear);
  return kTable;
}

}  // namespace weft::kernels::cpu

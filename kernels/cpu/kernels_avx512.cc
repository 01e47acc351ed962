// The kernels on AVX-512 with BF16.

#include <cstdint>

#include "kernels/cpu/impl/tables.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/impl/vec_avx512.inc.h"
// clang-format off
#include "kernels/cpu/impl/math.inc.h"
#include "kernels/cpu/impl/prepare.inc.h"
#include "kernels/cpu/impl/decode_f32.inc.h"
#include "kernels/cpu/impl/scales.inc.h"
#include "kernels/cpu/impl/linear.inc.h"
#include "kernels/cpu/impl/panel.inc.h"
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

// Null where ActivationFor never pairs the type with bf16 rows.
template <WeightType kType>
constexpr LinearFn PairsOf() {
  if constexpr (PackedFormatOf(kType).takes_bf16) {
    return LinearFor<kType, PairDecoder<kType>, PairDecoder<WeightType::kBf16>>();
  } else {
    return nullptr;
  }
}

template <size_t... kIndex>
constexpr std::array<LinearFn, kWeightTypes> PairsTable(std::index_sequence<kIndex...>) {
  return {PairsOf<static_cast<WeightType>(kIndex)>()...};
}

// Pairs of bf16 where activations are bf16, else float32.
void Linear(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin, int64_t tile_end,
            float* y, int64_t y_stride) {
  static constexpr auto kTable = PairsTable(std::make_index_sequence<kWeightTypes>());
  const LinearFn linear =
      x.type == ActivationType::kBf16 ? kTable[static_cast<size_t>(matrix.type)] : LinearF32;
  linear(matrix, x, tile_begin, tile_end, y, y_stride);
}

}  // namespace

const Kernels& Avx512Bf16Kernels() {
  static constexpr Kernels kTable = MakeTable(Isa::kAvx512Bf16, PrepareActivations<true>, Linear);
  return kTable;
}

}  // namespace weft::kernels::cpu

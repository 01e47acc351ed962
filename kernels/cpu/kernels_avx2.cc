// The kernels on AVX2, FMA and F16C. bf16 activations are kept as rounded float32.

#include <cstdint>

#include "kernels/cpu/impl/tables.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/impl/vec_avx2.inc.h"
// clang-format off
#include "kernels/cpu/impl/math.inc.h"
#include "kernels/cpu/impl/prepare.inc.h"
#include "kernels/cpu/impl/decode_f32.inc.h"
#include "kernels/cpu/impl/scales.inc.h"
#include "kernels/cpu/impl/linear.inc.h"
#include "kernels/cpu/impl/panel.inc.h"
#include "kernels/cpu/impl/rows.inc.h"
#include "kernels/cpu/impl/kv_append.inc.h"
#include "kernels/cpu/impl/attention.inc.h"
#include "kernels/cpu/impl/sampling.inc.h"
#include "kernels/cpu/impl/random.inc.h"
#include "kernels/cpu/impl/table.inc.h"
// clang-format on

namespace weft::kernels::cpu {

const Kernels& Avx2Kernels() {
  static constexpr Kernels kTable = MakeTable(Isa::kAvx2, PrepareActivations<false>, LinearF32);
  return kTable;
}

}  // namespace weft::kernels::cpu

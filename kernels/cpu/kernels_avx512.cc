// The kernels on AVX-512 with BF16.

#include <cstdint>

#include "kernels/cpu/impl/tables.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/impl/vec_avx512.inc.h"
// clang-format off
#include "kernels/cpu/impl/math.inc.h"
#include "kernels/cpu/impl/prepare.inc.h"
#include "kernels/cpu/impl/linear_f32.inc.h"
#include "kernels/cpu/impl/linear_bf16_avx512.inc.h"
#include "kernels/cpu/impl/rows.inc.h"
#include "kernels/cpu/impl/kv_append.inc.h"
#include "kernels/cpu/impl/attention.inc.h"
#include "kernels/cpu/impl/sampling.inc.h"
#include "kernels/cpu/impl/random.inc.h"
#include "kernels/cpu/impl/table.inc.h"
// clang-format on

namespace weft::kernels::cpu {

const Kernels& Avx512Bf16Kernels() {
  static constexpr Kernels kTable =
      MakeTable(Isa::kAvx512Bf16, PrepareActivations<true>, LinearBf16);
  return kTable;
}

}  // namespace weft::kernels::cpu

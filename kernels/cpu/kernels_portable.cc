// The kernels in plain C++, for any processor.

#include <cstdint>

#include "kernels/cpu/impl/tables.h"
// The vocabulary first, then what is written in it.
#include "kernels/cpu/impl/vec_portable.inc.h"
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

const Kernels& PortableKernels() {
  static constexpr Kernels kTable = MakeTable(Isa::kPortable, PrepareActivations<false>, LinearF32);
  return kTable;
}

}  // namespace weft::kernels::cpu

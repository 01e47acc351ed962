#include "kernels/cpu/kernels.h"

#include "kernels/cpu/impl/tables.h"

namespace weft::kernels::cpu {

const Kernels& KernelsFor(Isa isa) {
#if defined(WEFT_KERNELS_X86)
  if (isa == Isa::kAvx512Bf16) return Avx512Bf16Kernels();
  if (isa == Isa::kAvx2) return Avx2Kernels();
#endif
  (void)isa;
  return PortableKernels();
}

}  // namespace weft::kernels::cpu

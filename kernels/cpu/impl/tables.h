// The tables that KernelsFor chooses from; each is defined in the source of its instruction set.

#pragma once

#include "kernels/cpu/kernels.h"

namespace weft::kernels::cpu {

const Kernels& PortableKernels();
const Kernels& Avx2Kernels();
const Kernels& Avx512Bf16Kernels();

}  // namespace weft::kernels::cpu

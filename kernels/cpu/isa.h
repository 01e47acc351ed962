// Which instruction set the CPU kernels run on. Chosen at run time by CPUID (and XGETBV: the
// operating system must save the wide registers); nothing in the program is compiled for the
// machine it was built on. Pure functions, any thread.

#pragma once

namespace weft::kernels::cpu {

// In ascending order: the lowest common set of all ranks is the minimum.
enum class Isa {
  kPortable,    // plain C++
  kAvx2,        // AVX2, FMA, F16C
  kAvx512Bf16,  // AVX-512 F, BW, VL, DQ, VBMI, BF16
};

// The highest set that this machine runs.
Isa BestIsa();
bool IsSupported(Isa isa);

// "portable", "avx2", "avx512_bf16".
const char* IsaName(Isa isa);
// Inverse of IsaName; false when `name` is none of them.
bool ParseIsa(const char* name, Isa* isa);

}  // namespace weft::kernels::cpu

// The instruction sets that a test of CPU kernels goes through: all that this machine runs. One
// that it lacks is left out aloud (tests/support/skip.h).

#pragma once

#include <vector>

#include "kernels/cpu/isa.h"
#include "tests/support/skip.h"

namespace weft::test {

inline std::vector<kernels::cpu::Isa> RunnableIsas() {
  using kernels::cpu::Isa;
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16}) {
    if (kernels::cpu::IsSupported(isa)) {
      isas.push_back(isa);
    } else {
      LeaveOut(kernels::cpu::IsaName(isa), "this processor does not run it");
    }
  }
  return isas;
}

}  // namespace weft::test

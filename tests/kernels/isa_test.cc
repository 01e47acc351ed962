// Names of instruction sets and the table behind each.

#include "kernels/cpu/isa.h"

#include <catch2/catch.hpp>
#include <iostream>

#include "kernels/cpu/kernels.h"

namespace weft::kernels::cpu {
namespace {

TEST_CASE("Instruction set names round-trip and unknown ones are refused", "[kernels][isa]") {
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16}) {
    Isa parsed = Isa::kPortable;
    REQUIRE(ParseIsa(IsaName(isa), &parsed));
    CHECK(parsed == isa);
  }
  Isa unchanged = Isa::kAvx2;
  CHECK_FALSE(ParseIsa("avx512", &unchanged));
  CHECK_FALSE(ParseIsa("", &unchanged));
  CHECK(unchanged == Isa::kAvx2);
}

TEST_CASE("The best instruction set is supported and every table states its own",
          "[kernels][isa]") {
  CHECK(IsSupported(Isa::kPortable));
  CHECK(IsSupported(BestIsa()));
  std::cout << "instruction sets run:";
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16}) {
    if (!IsSupported(isa)) continue;
    std::cout << " " << IsaName(isa);
    CHECK(KernelsFor(isa).isa == isa);
    CHECK(isa <= BestIsa());
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace weft::kernels::cpu

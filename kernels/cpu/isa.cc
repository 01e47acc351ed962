#include "kernels/cpu/isa.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft::kernels::cpu {
namespace {

struct Features {
  bool avx2 = false;
  bool avx512_bf16 = false;
};

#if defined(__x86_64__)
struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers Cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  // Answers zeros for a leaf that the processor does not have.
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return Registers{};
  return r;
}

bool Bit(uint32_t word, int bit) { return (word >> bit & 1u) != 0; }

// Which register states the operating system saves (XCR0).
uint64_t EnabledStates() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

Features Detect() {
  Features features;
  const Registers leaf1 = Cpuid(1, 0);
  const bool osxsave = Bit(leaf1.ecx, 27);
  if (!osxsave) return features;
  const uint64_t states = EnabledStates();
  const bool ymm_saved = (states & 0x6) == 0x6;
  const bool zmm_saved = (states & 0xE6) == 0xE6;
  const Registers leaf7 = Cpuid(7, 0);
  const Registers leaf7_1 = Cpuid(7, 1);
  const bool fma = Bit(leaf1.ecx, 12);
  const bool f16c = Bit(leaf1.ecx, 29);
  features.avx2 = ymm_saved && Bit(leaf1.ecx, 28) && fma && f16c && Bit(leaf7.ebx, 5);
  const bool f = Bit(leaf7.ebx, 16);
  const bool dq = Bit(leaf7.ebx, 17);
  const bool bw = Bit(leaf7.ebx, 30);
  const bool vl = Bit(leaf7.ebx, 31);
  const bool vbmi = Bit(leaf7.ecx, 1);
  const bool bf16 = leaf7.eax >= 1 && Bit(leaf7_1.eax, 5);
  features.avx512_bf16 = features.avx2 && zmm_saved && f && dq && bw && vl && vbmi && bf16;
  return features;
}
#else
Features Detect() { return Features{}; }
#endif

const Features& Machine() {
  static const Features features = Detect();
  return features;
}

}  // namespace

Isa BestIsa() {
  if (IsSupported(Isa::kAvx512Bf16)) return Isa::kAvx512Bf16;
  if (IsSupported(Isa::kAvx2)) return Isa::kAvx2;
  return Isa::kPortable;
}

bool IsSupported(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return Machine().avx2;
    case Isa::kAvx512Bf16:
      return Machine().avx512_bf16;
  }
  return false;
}

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

bool ParseIsa(const char* name, Isa* isa) {
  for (const Isa candidate : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16}) {
    if (std::strcmp(name, IsaName(candidate)) == 0) {
      *isa = candidate;
      return true;
    }
  }
  return false;
}

}  // namespace weft::kernels::cpu

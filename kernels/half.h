// The two 16-bit number formats as float32, for whoever reads or writes them one by one. Pure
// functions, any thread, standard library only.

#pragma once

#include <bit>
#include <cstdint>

namespace weft::kernels {

// IEEE half precision to float32, exact. Both ways are computed and one is chosen, so that a loop
// over it has no branch.
inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // Subnormal halves are multiples of 2^-24.
  const auto small =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  // Infinity and NaN keep an exponent of all ones; others move from bias 15 to bias 127.
  const uint32_t exponent_shift = magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u;
  const uint32_t large = (magnitude << 13) + exponent_shift;
  return std::bit_cast<float>((magnitude < 0x0400u ? small : large) | sign);
}

// To nearest even; a NaN keeps its sign and upper bits and becomes a quiet one.
inline uint16_t RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}

}  // namespace weft::kernels

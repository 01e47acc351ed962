// What lies behind the codes of 16 rows of a packed block (packing.h states the order of the
// bytes): written for one of the rows when a matrix is packed, read for one when a row is unpacked.
// Packing alone uses it; kernels read all 16 at once (impl/scales.inc.h). Pure functions, any
// thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/packed_format.h"
#include "kernels/weight_super_blocks.h"

namespace weft::kernels::cpu {

inline uint32_t WordAt(const uint8_t* words, int64_t n, int bytes) {
  uint32_t word = 0;
  std::memcpy(&word, words + bytes * n, static_cast<size_t>(bytes));
  return word;
}

// Nibbles of scales 2i and 2i + 1 in byte [i][n], then kUnits fields of two bits in word n.
template <int kUnits>
struct SixBits {
  static constexpr int kWordBytes = kUnits / 4;
  static constexpr int kHalfs = 8 * kUnits + 16 * kWordBytes;

  static void Pack(const SuperBlockScales& scales, int64_t n, uint8_t* packed) {
    uint32_t high = 0;
    for (int u = 0; u < kUnits; u += 2) {
      const int pair = (scales.scales[u] & 15) | (scales.scales[u + 1] & 15) << 4;
      packed[8 * u + n] = static_cast<uint8_t>(pair);
    }
    for (int u = 0; u < kUnits; ++u) high |= uint32_t{scales.scales[u]} >> 4 << 2 * u;
    std::memcpy(packed + 8 * kUnits + kWordBytes * n, &high, kWordBytes);
    std::memcpy(packed + kHalfs + 2 * n, &scales.d, 2);
  }
  static SuperBlockScales At(const uint8_t* packed, int64_t n) {
    SuperBlockScales out{};
    const uint32_t high = WordAt(packed + 8 * kUnits, n, kWordBytes);
    for (int u = 0; u < kUnits; ++u) {
      const int low = packed[16 * (u / 2) + n] >> (u % 2 * 4) & 15;
      out.scales[u] = static_cast<uint8_t>(low | (high >> 2 * u & 3) << 4);
    }
    out.d = LoadHalfBits(packed + kHalfs + 2 * n);
    return out;
  }
};

// Low nibbles of scale and minimum u in byte [u][n], then in word n a nibble for each u: two bits
// of the scale, two of the minimum.
struct SixBitPairBytes {
  static constexpr int kHigh = 128;
  static constexpr int kHalfs = kHigh + 64;

  static void Pack(const SuperBlockScales& scales, int64_t n, uint8_t* packed) {
    uint32_t high = 0;
    for (int u = 0; u < 8; ++u) {
      packed[16 * u + n] =
          static_cast<uint8_t>((scales.scales[u] & 15) | (scales.minima[u] & 15) << 4);
      high |= (uint32_t{scales.scales[u]} >> 4 | uint32_t{scales.minima[u]} >> 4 << 2) << 4 * u;
    }
    std::memcpy(packed + kHigh + 4 * n, &high, 4);
    std::memcpy(packed + kHalfs + 2 * n, &scales.d, 2);
    std::memcpy(packed + kHalfs + 32 + 2 * n, &scales.m, 2);
  }
  static SuperBlockScales At(const uint8_t* packed, int64_t n) {
    SuperBlockScales out{};
    const uint32_t high = WordAt(packed + kHigh, n, 4);
    for (int u = 0; u < 8; ++u) {
      const uint8_t low = packed[16 * u + n];
      out.scales[u] = static_cast<uint8_t>((low & 15) | (high >> 4 * u & 3) << 4);
      out.minima[u] = static_cast<uint8_t>(low >> 4 | (high >> (4 * u + 2) & 3) << 4);
    }
    out.d = LoadHalfBits(packed + kHalfs + 2 * n);
    out.m = LoadHalfBits(packed + kHalfs + 32 + 2 * n);
    return out;
  }
};

// The scales of output n of a block whose scales lie at `packed`.
template <ScaleLayout kLayout, class Scales>
void PackScales(const Scales& scales, int64_t n, uint8_t* packed) {
  if constexpr (kLayout == ScaleLayout::kExponent) {
    packed[n] = static_cast<uint8_t>(scales.d);
  } else if constexpr (kLayout == ScaleLayout::kSix8) {
    SixBits<8>::Pack(scales, n, packed);
  } else if constexpr (kLayout == ScaleLayout::kSix16) {
    SixBits<16>::Pack(scales, n, packed);
  } else if constexpr (kLayout == ScaleLayout::kSixPair) {
    SixBitPairBytes::Pack(scales, n, packed);
  } else {
    constexpr bool kFour = kLayout == ScaleLayout::kFourPair;
    if constexpr (kFour || kLayout == ScaleLayout::kEight) {
      for (int u = 0; u < 16; ++u, packed += 16) {
        packed[n] = static_cast<uint8_t>(scales.scales[u] | (kFour ? scales.minima[u] << 4 : 0));
      }
    }
    std::memcpy(packed + 2 * n, &scales.d, 2);
    if (kFour || kLayout == ScaleLayout::kHalfPair) std::memcpy(packed + 32 + 2 * n, &scales.m, 2);
  }
}

// The same, back.
template <ScaleLayout kLayout>
auto ScalesAt(const uint8_t* packed, int64_t n) {
  if constexpr (kLayout == ScaleLayout::kExponent) {
    return BlockScales{packed[n], 0};
  } else if constexpr (kLayout == ScaleLayout::kHalf) {
    return BlockScales{LoadHalfBits(packed + 2 * n), 0};
  } else if constexpr (kLayout == ScaleLayout::kHalfPair) {
    return BlockScales{LoadHalfBits(packed + 2 * n), LoadHalfBits(packed + 32 + 2 * n)};
  } else if constexpr (kLayout == ScaleLayout::kSix8) {
    return SixBits<8>::At(packed, n);
  } else if constexpr (kLayout == ScaleLayout::kSix16) {
    return SixBits<16>::At(packed, n);
  } else if constexpr (kLayout == ScaleLayout::kSixPair) {
    return SixBitPairBytes::At(packed, n);
  } else {
    constexpr bool kFour = kLayout == ScaleLayout::kFourPair;
    SuperBlockScales out{};
    for (int u = 0; u < 16; ++u, packed += 16) {
      out.scales[u] = kFour ? packed[n] & 15 : packed[n];
      out.minima[u] = kFour ? packed[n] >> 4 : 0;
    }
    out.d = LoadHalfBits(packed + 2 * n);
    if (kFour) out.m = LoadHalfBits(packed + 32 + 2 * n);
    return out;
  }
}

}  // namespace weft::kernels::cpu

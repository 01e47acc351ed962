// The quantised blocks of 256 inputs, in the form of weight_blocks.h: units of 16 or 32 inputs have
// scales of their own, small integers that one f16 d of the block multiplies. Formats: block_q2_K
// to block_q6_K and block_iq4_xs of ggml-common.h. Pure functions, any thread, standard library
// only.

#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/weight_blocks.h"

namespace weft::kernels {

// The bits of a block of several units that are no codes; scales and minima as they are in the
// file, before what means zero is taken off.
struct SuperBlockScales : BlockScales {
  uint8_t scales[16];
  uint8_t minima[16];
};

// codes |= (byte i shifted right and masked) << left.
inline void AddBits(const uint8_t* bytes, int shift, uint8_t mask, int left, uint8_t* codes) {
  for (int i = 0; i < kCodeGroup; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (bytes[i] >> shift & mask) << left);
  }
}

// Two bits a code: 32 bytes hold four groups, the first in the lowest bits.
inline void TwoBitCodes(const uint8_t* bytes, int group, uint8_t* codes) {
  TakeBits(bytes + 32 * (group / 4), kCodeGroup, 2 * (group % 4), 3, codes);
}

// 32 bytes hold the low bits of two groups, the first in low nibbles.
inline void FourBitCodes(const uint8_t* bytes, int group, uint8_t* codes) {
  TakeBits(bytes + 32 * (group / 2), kCodeGroup, 4 * (group % 2), 15, codes);
}

// w = d * scale * code - dmin * minimum.
struct SuperBlockWithMinimum {
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code); }
  static float D(const SuperBlockScales& scales, int unit) {
    return HalfToFloat(scales.d) * static_cast<float>(scales.scales[unit]);
  }
  static float M(const SuperBlockScales& scales, int unit) {
    return -(HalfToFloat(scales.m) * static_cast<float>(scales.minima[unit]));
  }
};

// 16 bytes of scale (low) and minimum (high), 64 of codes, f16 d, f16 dmin.
template <>
struct Block<WeightType::kQ2K> : SuperBlockWithMinimum {
  static constexpr int kCodeBits = 2;
  static void Codes(const uint8_t* block, int group, uint8_t* codes) {
    TwoBitCodes(block + 16, group, codes);
  }
  static SuperBlockScales Scales(const uint8_t* block) {
    SuperBlockScales out{{LoadHalfBits(block + 80), LoadHalfBits(block + 82)}, {}, {}};
    TakeBits(block, 16, 0, 15, out.scales);
    TakeBits(block, 16, 4, 15, out.minima);
    return out;
  }
};

// f16 d, f16 dmin, then 12 bytes of eight scales and minima of 6 bits: get_scale_min_k4 of
// ggml-quants.c.
struct SixBitPairs : SuperBlockWithMinimum {
  static SuperBlockScales Scales(const uint8_t* block) {
    SuperBlockScales out{{LoadHalfBits(block), LoadHalfBits(block + 2)}, {}, {}};
    const uint8_t* const p = block + 4;
    for (int u = 0; u < 4; ++u) {
      out.scales[u] = p[u] & 63;
      out.minima[u] = p[u + 4] & 63;
      out.scales[u + 4] = static_cast<uint8_t>((p[u + 8] & 15) | p[u] >> 6 << 4);
      out.minima[u + 4] = static_cast<uint8_t>(p[u + 8] >> 4 | p[u + 4] >> 6 << 4);
    }
    return out;
  }
};

// Scales, then 128 bytes of nibbles.
template <>
struct Block<WeightType::kQ4K> : SixBitPairs {
  static constexpr int kCodeBits = 4;
  static void Codes(const uint8_t* block, int group, uint8_t* codes) {
    FourBitCodes(block + 16, group, codes);
  }
};

// Scales, 32 bytes of fifth bits (bit g of byte i is that of input i of group g), 128 of nibbles.
template <>
struct Block<WeightType::kQ5K> : SixBitPairs {
  static constexpr int kCodeBits = 5;
  static void Codes(const uint8_t* block, int group, uint8_t* codes) {
    FourBitCodes(block + 48, group, codes);
    AddBits(block + 16, group, 1, 4, codes);
  }
};

// w = d * (scale - 32) * value.
struct SixBitScales {
  static float D(const SuperBlockScales& scales, int unit) {
    return HalfToFloat(scales.d) * static_cast<float>(scales.scales[unit] - 32);
  }
  static float M(const SuperBlockScales&, int) { return 0.0f; }
};

// 32 bytes of third bits (as Q5_K's fifth), 64 of two bits, 12 of sixteen scales, f16 d.
template <>
struct Block<WeightType::kQ3K> : SixBitScales {
  static constexpr int kCodeBits = 3;
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code - 4); }
  static void Codes(const uint8_t* block, int group, uint8_t* codes) {
    TwoBitCodes(block + 32, group, codes);
    AddBits(block, group, 1, 2, codes);
  }
  static SuperBlockScales Scales(const uint8_t* block) {
    SuperBlockScales out{{LoadHalfBits(block + 108), 0}, {}, {}};
    const uint8_t* const p = block + 96;
    for (int u = 0; u < 16; ++u) {
      const int low = p[u % 8] >> (u / 8 * 4) & 15;
      const int high = p[8 + u % 4] >> (u / 4 * 2) & 3;
      out.scales[u] = static_cast<uint8_t>(low | high << 4);
    }
    return out;
  }
};

// f16 d, 16 bits of high halves of eight scales, 4 bytes of their low nibbles, 128 of nibbles: a
// group has 16 bytes.
template <>
struct Block<WeightType::kIq4Xs> : SixBitScales {
  static constexpr int kCodeBits = 4;
  static constexpr int8_t Value(uint8_t code) { return kIq4Values[code]; }
  static void Codes(const uint8_t* block, int group, uint8_t* codes) {
    NibbleCodes(block + 8 + 16 * group, codes);
  }
  static SuperBlockScales Scales(const uint8_t* block) {
    SuperBlockScales out{{LoadHalfBits(block), 0}, {}, {}};
    for (int u = 0; u < 8; ++u) {
      const int low = block[4 + u / 2] >> (u % 2 * 4) & 15;
      const int high = LoadHalfBits(block + 2) >> (2 * u) & 3;
      out.scales[u] = static_cast<uint8_t>(low | high << 4);
    }
    return out;
  }
};

// 128 bytes of low nibbles (64 of them hold groups 0 and 1, then 2 and 3), 64 of upper two bits, 16
// int8 scales, f16 d. w = d * scale * (code - 32).
template <>
struct Block<WeightType::kQ6K> {
  static constexpr int kCodeBits = 6;
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code - 32); }
  static void Codes(const uint8_t* block, int group, uint8_t* codes) {
    const uint8_t* const low = block + 64 * (group / 4) + 32 * (group % 2);
    TakeBits(low, kCodeGroup, group % 4 / 2 * 4, 15, codes);
    AddBits(block + 128 + 32 * (group / 4), 2 * (group % 4), 3, 4, codes);
  }
  static SuperBlockScales Scales(const uint8_t* block) {
    SuperBlockScales out{{LoadHalfBits(block + 208), 0}, {}, {}};
    std::memcpy(out.scales, block + 192, 16);
    return out;
  }
  static float D(const SuperBlockScales& scales, int unit) {
    return HalfToFloat(scales.d) * static_cast<float>(static_cast<int8_t>(scales.scales[unit]));
  }
  static float M(const SuperBlockScales&, int) { return 0.0f; }
};

}  // namespace weft::kernels

// Quantised blocks taken apart: what every format of ggml is made of. A weight is
//   value(code) * d (+ m)
// where codes are small integers, and d and m belong to a unit of consecutive inputs. Unpacking to
// float32 and packing for the CPU's kernels both start from here, so that a format's bits are
// described once. Block<type> for each quantised type has
//   kCodeBits                         codes are 0 .. 2^kCodeBits - 1
//   Value(code)                       the integer that a code stands for, -128 .. 127
//   Codes(block, b, codes)            the 32 codes of inputs 32b .. 32b + 31 of a block, in order
//   Scales(block)                     all that is no code
//   D(scales, unit), M(scales, unit)  of unit `unit`; M is 0 where the format has no minimum
// Formats: the structs block_* of ggml-common.h, dequantised as dequantize_row_* of ggml-quants.c
// do. Pure functions, any thread, standard library only.

#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"
#include "kernels/weight_format.h"

namespace weft::kernels {

// Inputs whose codes are handled together: the smallest quantised block.
inline constexpr int kCodeGroup = 32;

// The bits of a block of one unit that are no codes.
struct BlockScales {
  // Scale and minimum, f16.
  uint16_t d = 0;
  uint16_t m = 0;
};

inline uint16_t LoadHalfBits(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

// codes[i] = byte i shifted right and masked.
inline void TakeBits(const uint8_t* bytes, int count, int shift, uint8_t mask, uint8_t* codes) {
  for (int i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(bytes[i] >> shift & mask);
}

template <WeightType kType>
struct Block;

// What formats of one f16 scale a block share.
struct ScaledBlock {
  static BlockScales Scales(const uint8_t* block) { return {LoadHalfBits(block), 0}; }
  static float D(const BlockScales& scales, int) { return HalfToFloat(scales.d); }
  static float M(const BlockScales&, int) { return 0.0f; }
};

// What formats of an f16 scale and an f16 minimum a block share.
struct ScaledBlockWithMinimum {
  static BlockScales Scales(const uint8_t* block) {
    return {LoadHalfBits(block), LoadHalfBits(block + 2)};
  }
  static float D(const BlockScales& scales, int) { return HalfToFloat(scales.d); }
  static float M(const BlockScales& scales, int) { return HalfToFloat(scales.m); }
};

// f16 d, 32 int8.
template <>
struct Block<WeightType::kQ8_0> : ScaledBlock {
  static constexpr int kCodeBits = 8;
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code); }
  static void Codes(const uint8_t* block, int, uint8_t* codes) {
    std::memcpy(codes, block + 2, kCodeGroup);
  }
};

// Low nibbles are inputs 0 .. 15, high ones 16 .. 31.
inline void NibbleCodes(const uint8_t* bytes, uint8_t* codes) {
  TakeBits(bytes, 16, 0, 15, codes);
  TakeBits(bytes, 16, 4, 15, codes + 16);
}

// f16 d, 16 bytes of nibbles; 8 means zero.
template <>
struct Block<WeightType::kQ4_0> : ScaledBlock {
  static constexpr int kCodeBits = 4;
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code - 8); }
  static void Codes(const uint8_t* block, int, uint8_t* codes) { NibbleCodes(block + 2, codes); }
};

// f16 d, f16 m, 16 bytes of nibbles.
template <>
struct Block<WeightType::kQ4_1> : ScaledBlockWithMinimum {
  static constexpr int kCodeBits = 4;
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code); }
  static void Codes(const uint8_t* block, int, uint8_t* codes) { NibbleCodes(block + 4, codes); }
};

// Adds bit i of the 32 bits at `bits` to code i, as its bit 4.
inline void AddFifthBits(const uint8_t* bits, uint8_t* codes) {
  uint32_t word;
  std::memcpy(&word, bits, sizeof(word));
  for (int i = 0; i < kCodeGroup; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (word >> i & 1u) << 4);
  }
}

// f16 d, 32 fifth bits, 16 bytes of nibbles; 16 means zero.
template <>
struct Block<WeightType::kQ5_0> : ScaledBlock {
  static constexpr int kCodeBits = 5;
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code - 16); }
  static void Codes(const uint8_t* block, int, uint8_t* codes) {
    NibbleCodes(block + 6, codes);
    AddFifthBits(block + 2, codes);
  }
};

// f16 d, f16 m, 32 fifth bits, 16 bytes of nibbles.
template <>
struct Block<WeightType::kQ5_1> : ScaledBlockWithMinimum {
  static constexpr int kCodeBits = 5;
  static constexpr int8_t Value(uint8_t code) { return static_cast<int8_t>(code); }
  static void Codes(const uint8_t* block, int, uint8_t* codes) {
    NibbleCodes(block + 8, codes);
    AddFifthBits(block + 4, codes);
  }
};

// kvalues_iq4nl of ggml-common.h.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// f16 d, 16 bytes of nibbles, which stand for numbers of a table.
template <>
struct Block<WeightType::kIq4Nl> : ScaledBlock {
  static constexpr int kCodeBits = 4;
  static constexpr int8_t Value(uint8_t code) { return kIq4Values[code]; }
  static void Codes(const uint8_t* block, int, uint8_t* codes) { NibbleCodes(block + 2, codes); }
};

// The numbers of FP4 (E2M1), twice: kvalues_mxfp4 of ggml-common.h.
inline constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// An E8M0 exponent e, 16 bytes of nibbles. d is 2^(e - 128), half of what the OCP Microscaling
// formats say, because the values are twice theirs.
template <>
struct Block<WeightType::kMxfp4> {
  static constexpr int kCodeBits = 4;
  static constexpr int8_t Value(uint8_t code) { return kFp4Values[code]; }
  static void Codes(const uint8_t* block, int, uint8_t* codes) { NibbleCodes(block + 1, codes); }
  static BlockScales Scales(const uint8_t* block) { return {block[0], 0}; }
  static float D(const BlockScales& scales, int) {
    const uint32_t e = scales.d;
    return std::bit_cast<float>(e < 2 ? (e + 1) << 21 : (e - 1) << 23);
  }
  static float M(const BlockScales&, int) { return 0.0f; }
};

}  // namespace weft::kernels

// Weights of a packed block as pairs of bf16, for vdpbf16ps: it multiplies pairs exactly and adds
// in float32. 4- and 8-bit integers are exact in bf16, so weights are never rounded: table look-ups
// make them in registers. A block of 32 inputs is 16 steps, one pair each; see linear.inc.h.

#pragma once

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weft::kernels::cpu {
namespace {

// What all pair decoders share.
struct PairSteps {
  static constexpr int kSteps = static_cast<int>(kBlockInputs / 2);
  static constexpr int kDirectRows = 4;
  static constexpr int kPanelRows = kOneTileRowsMax;
  static constexpr bool kKernelsApart = false;
  using Weight = __m512i;
  using Input = __m512i;

  static Input Broadcast(const uint8_t* x) {
    int32_t pair;
    __builtin_memcpy(&pair, x, 4);
    return _mm512_set1_epi32(pair);
  }
  static Floats Product(Weight w, Input x, Floats sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
  }
  static Weight Ones() { return _mm512_set1_epi32(0x3F803F80); }

  // A step is a line of a panel (panel.inc.h).
  static constexpr int kStepsOfLine = 1;
  static void StoreLine(uint8_t* line, const Weight* steps) { _mm512_store_si512(line, *steps); }
};

template <WeightType kType>
struct PairDecoder;

template <>
struct PairDecoder<WeightType::kBf16> : PairSteps {
  static constexpr int kGroups = 16;
  struct Group {
    __m512i words;
  };
  Group LoadGroup(const uint8_t* block, int j) const {
    return Group{_mm512_loadu_si512(block + 64 * j)};
  }
  Weight Step(const Group& group, int) const { return group.words; }
};

// Codes in planes look the bf16 of what they stand for up in a table of 32 or, with 6 bits, 64. The
// look-up ignores the bits of an index above 5 or 6, so that only those of the high plane must be
// put above those of the low one; of shorter codes the table repeats itself.
template <WeightType kType>
struct CodePairDecoder : PairSteps {
  static constexpr int kGroups = 4;
  static constexpr int kLow = PackedFormatOf(kType).low_bits;
  static constexpr int kHigh = PackedFormatOf(kType).high_bits;
  static constexpr int kBits = kLow + kHigh;

  struct LowFields {
    __m512i low;
  };
  struct BothFields {
    __m512i low;
    __m512i high;
  };
  // No member that nobody uses: compilers would copy groups through memory.
  using Group = std::conditional_t<(kHigh > 0), BothFields, LowFields>;
  __m512i table[2];

  static constexpr std::array<uint16_t, 64> Words() {
    std::array<uint16_t, 64> words{};
    for (int i = 0; i < 64; ++i) {
      const auto code = static_cast<uint8_t>(i & ((1 << kBits) - 1));
      const float value = static_cast<float>(Block<kType>::Value(code));
      words[static_cast<size_t>(i)] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    }
    return words;
  }
  CodePairDecoder() {
    alignas(64) static constexpr std::array<uint16_t, 64> kWords = Words();
    table[0] = _mm512_load_si512(kWords.data());
    table[1] = _mm512_load_si512(kWords.data() + 32);
  }
  // Fields of group j, moved to the lowest bits of the words.
  template <int kFieldBits>
  static __m512i LoadFields(const uint8_t* plane, int j) {
    constexpr int kGroupsOfLine = 4 / kFieldBits;
    const __m512i line = _mm512_loadu_si512(plane + 64 * (j / kGroupsOfLine));
    const int shift = 4 * kFieldBits * (j % kGroupsOfLine);
    if constexpr (kFieldBits == 4) return line;
    return _mm512_srli_epi16(line, static_cast<unsigned>(shift));
  }
  Group LoadGroup(const uint8_t* block, int j) const {
    Group group;
    group.low = LoadFields<kLow>(block, j);
    if constexpr (kHigh > 0) group.high = LoadFields<kHigh>(block + 64 * kLow, j);
    return group;
  }
  template <int kStep>
  Weight Field(const Group& group) const {
    __m512i index = kStep == 0 ? group.low : _mm512_srli_epi16(group.low, kStep * kLow);
    if constexpr (kHigh > 0) {
      constexpr int kMove = kStep * kHigh - kLow;
      __m512i moved = group.high;
      if constexpr (kMove > 0) moved = _mm512_srli_epi16(moved, kMove);
      if constexpr (kMove < 0) moved = _mm512_slli_epi16(moved, -kMove);
      // The low plane's bits of `index`, all others of `moved`.
      const __m512i low_bits = _mm512_set1_epi16((1 << kLow) - 1);
      index = _mm512_ternarylogic_epi32(low_bits, index, moved, 0xCA);
    }
    if constexpr (kBits <= 5) return _mm512_permutexvar_epi16(index, table[0]);
    return _mm512_permutex2var_epi16(table[0], index, table[1]);
  }
  Weight Step(const Group& group, int s) const {
    switch (s) {
      case 0:
        return Field<0>(group);
      case 1:
        return Field<1>(group);
      case 2:
        return Field<2>(group);
      default:
        return Field<3>(group);
    }
  }
};
template <WeightType kType>
struct PairDecoder : CodePairDecoder<kType> {};

// |q| = 0..128 looks its two bf16 bytes up by its low 7 bits: entry 0 is that of 128, and a mask
// makes zeros of q = 0. The sign is q's own.
template <>
struct PairDecoder<WeightType::kQ8_0> : PairSteps {
  static constexpr int kGroups = 8;
  struct Group {
    __m512i low;
    __m512i high;
  };
  __m512i low[2];
  __m512i high[2];

  PairDecoder() {
    alignas(64) uint8_t low_bytes[128];
    alignas(64) uint8_t high_bytes[128];
    for (int i = 0; i < 128; ++i) {
      const float magnitude = static_cast<float>(i == 0 ? 128 : i);
      uint32_t bits;
      __builtin_memcpy(&bits, &magnitude, 4);
      low_bytes[i] = static_cast<uint8_t>(bits >> 16);
      high_bytes[i] = static_cast<uint8_t>(bits >> 24);
    }
    for (int h = 0; h < 2; ++h) {
      low[h] = _mm512_load_si512(low_bytes + 64 * h);
      high[h] = _mm512_load_si512(high_bytes + 64 * h);
    }
  }
  Group LoadGroup(const uint8_t* block, int j) const {
    const __m512i q = _mm512_loadu_si512(block + 64 * j);
    const __mmask64 nonzero = _mm512_test_epi8_mask(q, q);
    const __m512i magnitude = _mm512_abs_epi8(q);
    const __m512i u = _mm512_maskz_permutex2var_epi8(nonzero, high[0], magnitude, high[1]);
    // u | (q & 0x80)
    return Group{_mm512_permutex2var_epi8(low[0], magnitude, low[1]),
                 _mm512_ternarylogic_epi32(u, q, _mm512_set1_epi8(-128), 0xF8)};
  }
  Weight Step(const Group& group, int s) const {
    return s == 0 ? _mm512_unpacklo_epi8(group.low, group.high)
                  : _mm512_unpackhi_epi8(group.low, group.high);
  }
};

}  // namespace
}  // namespace weft::kernels::cpu

// Weights of a packed block as pairs of bf16, for vdpbf16ps: it multiplies pairs exactly and adds
// in float32. 4- and 8-bit integers are exact in bf16, so weights are never rounded: table look-ups
// make them in registers. A block of 32 inputs is 16 steps, one pair each; see linear.inc.h.

#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// What all pair decoders share.
struct PairSteps {
  static constexpr int kSteps = static_cast<int>(kBlockInputs / 2);
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

// A table of bf16 integers -8..7 or 0..15, twice: bit 4 of an index does not matter, and vpermw
// ignores the bits above it.
template <int kBias>
struct NibblePairDecoder : PairSteps {
  static constexpr int kGroups = 4;
  struct Group {
    __m512i words;
  };
  __m512i table;

  NibblePairDecoder() {
    alignas(64) uint16_t values[32];
    for (int i = 0; i < 32; ++i) {
      const float value = static_cast<float>(i % 16 - kBias);
      uint32_t bits;
      __builtin_memcpy(&bits, &value, 4);
      values[i] = static_cast<uint16_t>(bits >> 16);
    }
    table = _mm512_load_si512(values);
  }
  Group LoadGroup(const uint8_t* block, int j) const {
    return Group{_mm512_loadu_si512(block + 64 * j)};
  }
  Weight Step(const Group& group, int s) const {
    __m512i index = group.words;
    if (s == 1) index = _mm512_srli_epi16(index, 4);
    if (s == 2) index = _mm512_srli_epi16(index, 8);
    if (s == 3) index = _mm512_srli_epi16(index, 12);
    return _mm512_permutexvar_epi16(index, table);
  }
};
template <>
struct PairDecoder<WeightType::kQ4_0> : NibblePairDecoder<8> {};
template <>
struct PairDecoder<WeightType::kQ4_1> : NibblePairDecoder<0> {};

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

// The vector vocabulary on AVX-512 (F, BW, VL, DQ, VBMI): one register each. Meanings as in
// vec_portable.inc.h; MulAdd is fused.

#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

constexpr int kLanes = 16;
// Rows times one and two tiles in the Linear kernel: 12 sums of a block, 12 over blocks, weights
// and one activation are 27 of 32 registers.
constexpr int kOneTileRowsMax = 12;
constexpr int kTwoTileRowsMax = 6;
// Rows of float32 that formats with panels take without one, and at once from one (panel.inc.h).
constexpr int kDirectRowsMax = 1;
constexpr int kPanelRowsMax = 6;
constexpr int kQueriesMax = 6;
constexpr int kScoreBlocks = 2;

using Floats = __m512;
using Ints = __m512i;
using Mask = __mmask16;

inline float ScalarSqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

inline Mask FirstLanes(int64_t n) {
  return n >= kLanes ? static_cast<Mask>(0xFFFF) : static_cast<Mask>((1u << n) - 1u);
}
inline uint32_t MaskBits(Mask m) { return m; }

inline Floats Zero() { return _mm512_setzero_ps(); }
inline Floats Set(float x) { return _mm512_set1_ps(x); }
inline Floats Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
inline Floats LoadN(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(FirstLanes(n), p); }
inline void StoreN(float* p, Floats x, int64_t n) { _mm512_mask_storeu_ps(p, FirstLanes(n), x); }
inline Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats Sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats Mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats Div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats MulAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats Max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats Min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Mask Greater(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Mask IsNan(Floats a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
inline Floats Select(Mask m, Floats yes, Floats no) { return _mm512_mask_blend_ps(m, no, yes); }
inline Ints SelectInts(Mask m, Ints yes, Ints no) { return _mm512_mask_blend_epi32(m, no, yes); }

inline Ints SetInts(uint32_t x) { return _mm512_set1_epi32(static_cast<int32_t>(x)); }
inline Ints Iota() {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
inline Ints LoadInts(const void* p) { return _mm512_loadu_si512(p); }
inline Ints LoadIntsN(const void* p, int64_t n) {
  return _mm512_maskz_loadu_epi32(FirstLanes(n), p);
}
inline void StoreInts(void* p, Ints x) { _mm512_storeu_si512(p, x); }
inline Ints AddInts(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints SubInts(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints SubBytes(Ints a, Ints b) { return _mm512_sub_epi8(a, b); }
inline Ints MulHalves(Ints a, Ints b) { return _mm512_mullo_epi16(a, b); }
inline Ints And(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints Or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints Xor(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
template <int kBits>
inline Ints ShiftLeft(Ints a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
inline Ints ShiftRight(Ints a) {
  return _mm512_srli_epi32(a, kBits);
}
template <int kBits>
inline Ints ShiftRightSigned(Ints a) {
  return _mm512_srai_epi32(a, kBits);
}
inline Ints ShiftRightBy(Ints a, int bits) {
  return _mm512_srli_epi32(a, static_cast<unsigned>(bits));
}
inline void MulWide(Ints a, uint32_t b, Ints* low, Ints* high) {
  const Ints factor = SetInts(b);
  const Ints even = _mm512_mul_epu32(a, factor);
  const Ints odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factor);
  constexpr Mask kOdd = 0xAAAA;
  *low = _mm512_mask_blend_epi32(kOdd, even, _mm512_slli_epi64(odd, 32));
  *high = _mm512_mask_blend_epi32(kOdd, _mm512_srli_epi64(even, 32), odd);
}
inline Floats ToFloats(Ints a) { return _mm512_cvtepi32_ps(a); }
inline Floats AsFloats(Ints a) { return _mm512_castsi512_ps(a); }
inline Ints AsInts(Floats a) { return _mm512_castps_si512(a); }

// Nibble kShift / 4 of each lane, less kBias: vpermps looks at the low four bits of an index only.
template <int kShift, int kBias>
inline Floats NibbleFloats(Ints words) {
  const Floats table = _mm512_cvtepi32_ps(_mm512_sub_epi32(Iota(), _mm512_set1_epi32(kBias)));
  return _mm512_permutexvar_ps(kShift == 0 ? words : ShiftRight<kShift>(words), table);
}

using Table16 = Floats;
inline Table16 LoadTable16(const float* values) { return _mm512_loadu_ps(values); }
template <int kShift>
inline Floats LookUpNibble(Ints words, Table16 table) {
  return _mm512_permutexvar_ps(kShift == 0 ? words : ShiftRight<kShift>(words), table);
}

inline Ints LoadBytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Ints LoadWords(const uint16_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void StoreWords(uint16_t* p, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x));
}
inline void StoreEvenWords(uint16_t* p, Ints x, int64_t n) {
  const uint32_t words = n >= kLanes ? ~0u : (1u << 2 * n) - 1u;
  const __mmask32 even = words & 0x55555555u;
  _mm512_mask_storeu_epi16(p, even, x);
}
inline Floats LoadHalfs(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void StoreHalfs(uint16_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void LoadByteGroup(const uint8_t* p, Ints* h0, Ints* h1) {
  const Ints bytes = LoadInts(p);
  *h0 = _mm512_unpacklo_epi8(_mm512_setzero_si512(), bytes);
  *h1 = _mm512_unpackhi_epi8(_mm512_setzero_si512(), bytes);
}
inline void StoreInterleaved4(float* out, Floats x0, Floats x1, Floats x2, Floats x3) {
  // Per 128-bit lane l: r_i = (x0, x1, x2, x3) of element 4l + i.
  const Floats a = _mm512_unpacklo_ps(x0, x1);
  const Floats b = _mm512_unpackhi_ps(x0, x1);
  const Floats c = _mm512_unpacklo_ps(x2, x3);
  const Floats d = _mm512_unpackhi_ps(x2, x3);
  const Floats r[4] = {_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xEE),
                       _mm512_shuffle_ps(b, d, 0x44), _mm512_shuffle_ps(b, d, 0xEE)};
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_ps(out + 4 * i, _mm512_extractf32x4_ps(r[i], 0));
    _mm_storeu_ps(out + 4 * (4 + i), _mm512_extractf32x4_ps(r[i], 1));
    _mm_storeu_ps(out + 4 * (8 + i), _mm512_extractf32x4_ps(r[i], 2));
    _mm_storeu_ps(out + 4 * (12 + i), _mm512_extractf32x4_ps(r[i], 3));
  }
}

inline float SumOf8(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float MaxOf8(__m256 x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline float SumLanes(Floats x) {
  return SumOf8(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}
inline float MaxLanes(Floats x) {
  return MaxOf8(_mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace weft::kernels::cpu

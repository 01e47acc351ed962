// The vector vocabulary on AVX2, FMA and F16C: two registers each, lanes 0..7 and 8..15. Meanings
// as in vec_portable.inc.h; MulAdd is fused.

#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

constexpr int kLanes = 16;
// Rows times one tile in the Linear kernel: 12 sums of a block, weights and one activation are 15
// of 16 registers; the sums over blocks are in memory.
constexpr int kOneTileRowsMax = 5;
constexpr int kTwoTileRowsMax = 0;
// Rows of float32 that formats with panels take without one, and at once from one (panel.inc.h).
constexpr int kDirectRowsMax = 4;
constexpr int kPanelRowsMax = 5;
constexpr int kQueriesMax = 3;
constexpr int kScoreBlocks = 1;

struct Floats {
  __m256 a, b;
};
struct Ints {
  __m256i a, b;
};
struct Mask {
  __m256i a, b;
};

inline float ScalarSqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

inline Ints SetInts(uint32_t x) {
  const __m256i v = _mm256_set1_epi32(static_cast<int32_t>(x));
  return {v, v};
}
inline Ints Iota() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
          _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
inline Mask FirstLanes(int64_t n) {
  const Ints lanes = Iota();
  const __m256i count = _mm256_set1_epi32(static_cast<int32_t>(n < kLanes ? n : kLanes));
  return {_mm256_cmpgt_epi32(count, lanes.a), _mm256_cmpgt_epi32(count, lanes.b)};
}
inline uint32_t MaskBits(Mask m) {
  const int low = _mm256_movemask_ps(_mm256_castsi256_ps(m.a));
  const int high = _mm256_movemask_ps(_mm256_castsi256_ps(m.b));
  return static_cast<uint32_t>(low | high << 8);
}

inline Floats Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats Set(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
inline Floats Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Floats x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline Floats LoadN(const float* p, int64_t n) {
  if (n >= kLanes) return Load(p);
  const Mask m = FirstLanes(n);
  return {_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
inline void StoreN(float* p, Floats x, int64_t n) {
  if (n >= kLanes) return Store(p, x);
  const Mask m = FirstLanes(n);
  _mm256_maskstore_ps(p, m.a, x.a);
  _mm256_maskstore_ps(p + 8, m.b, x.b);
}
inline Floats Add(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Floats Sub(Floats x, Floats y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Floats Mul(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Floats Div(Floats x, Floats y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Floats Fma(Floats x, Floats y, Floats z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Floats MulAdd(Floats x, Floats y, Floats z) { return Fma(x, y, z); }
inline Floats Max(Floats x, Floats y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Floats Min(Floats x, Floats y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Mask Greater(Floats x, Floats y) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ))};
}
inline Mask IsNan(Floats x) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}
inline Floats AsFloats(Ints x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline Ints AsInts(Floats x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline Ints SelectInts(Mask m, Ints yes, Ints no) {
  return {_mm256_blendv_epi8(no.a, yes.a, m.a), _mm256_blendv_epi8(no.b, yes.b, m.b)};
}
inline Floats Select(Mask m, Floats yes, Floats no) {
  return AsFloats(SelectInts(m, AsInts(yes), AsInts(no)));
}

inline Ints LoadInts(const void* p) {
  const __m256i* v = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
inline Ints LoadIntsN(const void* p, int64_t n) {
  const Mask m = FirstLanes(n);
  const int* v = static_cast<const int*>(p);
  return {_mm256_maskload_epi32(v, m.a), _mm256_maskload_epi32(v + 8, m.b)};
}
inline void StoreInts(void* p, Ints x) {
  __m256i* v = static_cast<__m256i*>(p);
  _mm256_storeu_si256(v, x.a);
  _mm256_storeu_si256(v + 1, x.b);
}
inline Ints AddInts(Ints x, Ints y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline Ints SubInts(Ints x, Ints y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
inline Ints SubBytes(Ints x, Ints y) {
  return {_mm256_sub_epi8(x.a, y.a), _mm256_sub_epi8(x.b, y.b)};
}
inline Ints MulHalves(Ints x, Ints y) {
  return {_mm256_mullo_epi16(x.a, y.a), _mm256_mullo_epi16(x.b, y.b)};
}
inline Ints And(Ints x, Ints y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline Ints Or(Ints x, Ints y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline Ints Xor(Ints x, Ints y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
template <int kBits>
inline Ints ShiftLeft(Ints x) {
  return {_mm256_slli_epi32(x.a, kBits), _mm256_slli_epi32(x.b, kBits)};
}
template <int kBits>
inline Ints ShiftRight(Ints x) {
  return {_mm256_srli_epi32(x.a, kBits), _mm256_srli_epi32(x.b, kBits)};
}
template <int kBits>
inline Ints ShiftRightSigned(Ints x) {
  return {_mm256_srai_epi32(x.a, kBits), _mm256_srai_epi32(x.b, kBits)};
}
inline Ints ShiftRightBy(Ints x, int bits) {
  return {_mm256_srli_epi32(x.a, bits), _mm256_srli_epi32(x.b, bits)};
}
inline void MulWideHalf(__m256i x, __m256i factor, __m256i* low, __m256i* high) {
  const __m256i even = _mm256_mul_epu32(x, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
inline void MulWide(Ints x, uint32_t y, Ints* low, Ints* high) {
  const Ints factor = SetInts(y);
  MulWideHalf(x.a, factor.a, &low->a, &high->a);
  MulWideHalf(x.b, factor.b, &low->b, &high->b);
}
inline Floats ToFloats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

// Nibble kShift / 4 of each lane, less kBias.
template <int kShift, int kBias>
inline Floats NibbleFloats(const Ints& words) {
  const Ints nibble = And(ShiftRight<kShift>(words), SetInts(15));
  return ToFloats(kBias == 0 ? nibble : SubInts(nibble, SetInts(kBias)));
}

struct Table16 {
  __m256 low, high;
};
inline Table16 LoadTable16(const float* values) {
  return {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
}
// Bit 3 of the index, moved to the sign, chooses the table.
template <int kShift>
inline __m256 LookUpHalf(__m256i words, const Table16& table) {
  const __m256i index = _mm256_srli_epi32(words, kShift);
  const __m256 choice = _mm256_castsi256_ps(_mm256_slli_epi32(words, 28 - kShift));
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index),
                          _mm256_permutevar8x32_ps(table.high, index), choice);
}
template <int kShift>
inline Floats LookUpNibble(const Ints& words, const Table16& table) {
  return {LookUpHalf<kShift>(words.a, table), LookUpHalf<kShift>(words.b, table)};
}

inline Ints LoadBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline Ints LoadWords(const uint16_t* p) {
  const __m128i* v = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(v)), _mm256_cvtepu16_epi32(_mm_loadu_si128(v + 1))};
}
inline void StoreWords(uint16_t* p, Ints x) {
  // Packs within 128-bit lanes: quarters a0 b0 a1 b1, put in order.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}
inline void StoreEvenWords(uint16_t* p, Ints x, int64_t n) {
  alignas(32) uint32_t words[kLanes];
  StoreInts(words, x);
  for (int64_t i = 0; i < kLanes && i < n; ++i) p[2 * i] = static_cast<uint16_t>(words[i]);
}
inline Floats LoadHalfs(const uint8_t* p) {
  const __m128i* v = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(v)), _mm256_cvtph_ps(_mm_loadu_si128(v + 1))};
}
inline void StoreHalfs(uint16_t* p, Floats x) {
  __m128i* v = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(v, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(v + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline void LoadByteGroup(const uint8_t* p, Ints* h0, Ints* h1) {
  const Ints bytes = LoadInts(p);
  const __m256i zero = _mm256_setzero_si256();
  *h0 = {_mm256_unpacklo_epi8(zero, bytes.a), _mm256_unpacklo_epi8(zero, bytes.b)};
  *h1 = {_mm256_unpackhi_epi8(zero, bytes.a), _mm256_unpackhi_epi8(zero, bytes.b)};
}
inline void StoreInterleavedHalf(float* out, __m256 x0, __m256 x1, __m256 x2, __m256 x3) {
  const __m256 a = _mm256_unpacklo_ps(x0, x1);
  const __m256 b = _mm256_unpackhi_ps(x0, x1);
  const __m256 c = _mm256_unpacklo_ps(x2, x3);
  const __m256 d = _mm256_unpackhi_ps(x2, x3);
  const __m256 r[4] = {_mm256_shuffle_ps(a, c, 0x44), _mm256_shuffle_ps(a, c, 0xEE),
                       _mm256_shuffle_ps(b, d, 0x44), _mm256_shuffle_ps(b, d, 0xEE)};
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_ps(out + 4 * i, _mm256_castps256_ps128(r[i]));
    _mm_storeu_ps(out + 4 * (4 + i), _mm256_extractf128_ps(r[i], 1));
  }
}
inline void StoreInterleaved4(float* out, Floats x0, Floats x1, Floats x2, Floats x3) {
  StoreInterleavedHalf(out, x0.a, x1.a, x2.a, x3.a);
  StoreInterleavedHalf(out + 32, x0.b, x1.b, x2.b, x3.b);
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
inline float SumLanes(Floats x) { return SumOf8(_mm256_add_ps(x.a, x.b)); }
inline float MaxLanes(Floats x) { return MaxOf8(_mm256_max_ps(x.a, x.b)); }

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace weft::kernels::cpu

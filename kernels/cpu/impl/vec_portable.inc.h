// Sixteen numbers at once in plain C++: the vocabulary that the other *.inc.h files are written in.
// vec_avx2.inc.h and vec_avx512.inc.h offer the same names. Everything here and in all *.inc.h is
// in an anonymous namespace, so that code compiled for one instruction set never serves another.

#pragma once

#include <cstdint>
#include <cstring>

namespace weft::kernels::cpu {
namespace {

constexpr int kLanes = 16;
// Rows times one tile (and times two: none) in the Linear kernel; queries and blocks in attention.
// Any values give the same numbers.
constexpr int kOneTileRowsMax = 4;
constexpr int kTwoTileRowsMax = 0;
constexpr int kQueriesMax = 4;
constexpr int kScoreBlocks = 1;

struct Floats {
  float v[kLanes];
};
struct Ints {
  uint32_t v[kLanes];
};
struct Mask {
  uint32_t bits;
};

template <typename F>
inline Floats MakeFloats(F f) {
  Floats r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
template <typename F>
inline Ints MakeInts(F f) {
  Ints r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
template <typename F>
inline Mask MakeMask(F f) {
  Mask r{0};
  for (int i = 0; i < kLanes; ++i) r.bits |= static_cast<uint32_t>(f(i)) << i;
  return r;
}

inline float ScalarFma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float ScalarSqrt(float x) { return __builtin_sqrtf(x); }

inline Floats Zero() { return Floats{}; }
inline Floats Set(float x) {
  return MakeFloats([=](int) { return x; });
}
inline Floats Load(const float* p) {
  Floats r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void Store(float* p, const Floats& x) { std::memcpy(p, x.v, sizeof(x.v)); }
// The first n lanes (all, when n >= 16); the others are zero and their memory is not touched.
inline Floats LoadN(const float* p, int64_t n) {
  return MakeFloats([=](int i) { return i < n ? p[i] : 0.0f; });
}
inline void StoreN(float* p, const Floats& x, int64_t n) {
  for (int i = 0; i < kLanes && i < n; ++i) p[i] = x.v[i];
}
inline Floats Add(const Floats& a, const Floats& b) {
  return MakeFloats([&](int i) { return a.v[i] + b.v[i]; });
}
inline Floats Sub(const Floats& a, const Floats& b) {
  return MakeFloats([&](int i) { return a.v[i] - b.v[i]; });
}
inline Floats Mul(const Floats& a, const Floats& b) {
  return MakeFloats([&](int i) { return a.v[i] * b.v[i]; });
}
inline Floats Div(const Floats& a, const Floats& b) {
  return MakeFloats([&](int i) { return a.v[i] / b.v[i]; });
}
// a * b + c as this instruction set does it fastest: fused, but here rounded twice, because a fused
// one is a library call.
inline Floats MulAdd(const Floats& a, const Floats& b, const Floats& c) {
  return MakeFloats([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
// a * b + c rounded once, everywhere.
inline Floats Fma(const Floats& a, const Floats& b, const Floats& c) {
  return MakeFloats([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
// The larger; b when either is NaN.
inline Floats Max(const Floats& a, const Floats& b) {
  return MakeFloats([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Mask Greater(const Floats& a, const Floats& b) {
  return MakeMask([&](int i) { return a.v[i] > b.v[i]; });
}
inline Mask IsNan(const Floats& a) {
  return MakeMask([&](int i) { return a.v[i] != a.v[i]; });
}
inline Mask FirstLanes(int64_t n) { return Mask{n >= kLanes ? 0xFFFFu : (1u << n) - 1u}; }
inline uint32_t MaskBits(Mask m) { return m.bits; }
inline Floats Select(Mask m, const Floats& yes, const Floats& no) {
  return MakeFloats([&](int i) { return (m.bits >> i & 1u) != 0 ? yes.v[i] : no.v[i]; });
}
inline Ints SelectInts(Mask m, const Ints& yes, const Ints& no) {
  return MakeInts([&](int i) { return (m.bits >> i & 1u) != 0 ? yes.v[i] : no.v[i]; });
}

inline Ints SetInts(uint32_t x) {
  return MakeInts([=](int) { return x; });
}
inline Ints Iota() {
  return MakeInts([](int i) { return static_cast<uint32_t>(i); });
}
inline Ints LoadInts(const void* p) {
  Ints r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline Ints LoadIntsN(const void* p, int64_t n) {
  Ints r{};
  std::memcpy(r.v, p, static_cast<size_t>(n) * 4);
  return r;
}
inline void StoreInts(void* p, const Ints& x) { std::memcpy(p, x.v, sizeof(x.v)); }
inline Ints AddInts(const Ints& a, const Ints& b) {
  return MakeInts([&](int i) { return a.v[i] + b.v[i]; });
}
inline Ints SubInts(const Ints& a, const Ints& b) {
  return MakeInts([&](int i) { return a.v[i] - b.v[i]; });
}
inline Ints And(const Ints& a, const Ints& b) {
  return MakeInts([&](int i) { return a.v[i] & b.v[i]; });
}
inline Ints Or(const Ints& a, const Ints& b) {
  return MakeInts([&](int i) { return a.v[i] | b.v[i]; });
}
inline Ints Xor(const Ints& a, const Ints& b) {
  return MakeInts([&](int i) { return a.v[i] ^ b.v[i]; });
}
template <int kBits>
inline Ints ShiftLeft(const Ints& a) {
  return MakeInts([&](int i) { return a.v[i] << kBits; });
}
template <int kBits>
inline Ints ShiftRight(const Ints& a) {
  return MakeInts([&](int i) { return a.v[i] >> kBits; });
}
template <int kBits>
inline Ints ShiftRightSigned(const Ints& a) {
  return MakeInts(
      [&](int i) { return static_cast<uint32_t>(static_cast<int32_t>(a.v[i]) >> kBits); });
}
// The 64-bit product of each lane with `b`.
inline void MulWide(const Ints& a, uint32_t b, Ints* low, Ints* high) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t product = static_cast<uint64_t>(a.v[i]) * b;
    low->v[i] = static_cast<uint32_t>(product);
    high->v[i] = static_cast<uint32_t>(product >> 32);
  }
}
// Lanes are signed; exact below 2^24.
inline Floats ToFloats(const Ints& a) {
  return MakeFloats([&](int i) { return static_cast<float>(static_cast<int32_t>(a.v[i])); });
}
inline Floats AsFloats(const Ints& a) {
  Floats r;
  std::memcpy(r.v, a.v, sizeof(r.v));
  return r;
}
inline Ints AsInts(const Floats& a) {
  Ints r;
  std::memcpy(r.v, a.v, sizeof(r.v));
  return r;
}

// Nibble kShift / 4 of each lane, less kBias.
template <int kShift, int kBias>
inline Floats NibbleFloats(const Ints& words) {
  const Ints nibble = And(ShiftRight<kShift>(words), SetInts(15));
  return ToFloats(kBias == 0 ? nibble : SubInts(nibble, SetInts(kBias)));
}

// 16 words widened to 32 bits, and back (the upper halves must be zero).
inline Ints LoadWords(const uint16_t* p) {
  return MakeInts([=](int i) { return static_cast<uint32_t>(p[i]); });
}
inline void StoreWords(uint16_t* p, const Ints& x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint16_t>(x.v[i]);
}

// 16 f16 numbers, exactly.
inline Floats LoadHalfs(const uint8_t* p) {
  return MakeFloats([=](int i) {
    uint16_t half;
    std::memcpy(&half, p + 2 * i, 2);
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1Fu;
    const uint32_t mantissa = half & 0x3FFu;
    uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 0x1F) bits = sign | 0x7F800000u | mantissa << 13;
    float value;
    std::memcpy(&value, &bits, 4);
    if (exponent == 0) {
      value = static_cast<float>(mantissa) * 0x1p-24f;
      value = sign != 0 ? -value : value;
    }
    return value;
  });
}

// A 64-byte group of packed kQ8_0 (packing.h): bits 8..15 of lane n are the byte p = 0, bits 24..31
// the byte p = 1, for h = 0 and 1.
inline void LoadByteGroup(const uint8_t* p, Ints* h0, Ints* h1) {
  for (int n = 0; n < kLanes; ++n) {
    const uint8_t* at = p + 16 * (n / 4) + 2 * (n % 4);
    h0->v[n] = static_cast<uint32_t>(at[0]) << 8 | static_cast<uint32_t>(at[1]) << 24;
    h1->v[n] = static_cast<uint32_t>(at[8]) << 8 | static_cast<uint32_t>(at[9]) << 24;
  }
}

// out[4 * i + j] = lane i of x_j.
inline void StoreInterleaved4(float* out, const Floats& x0, const Floats& x1, const Floats& x2,
                              const Floats& x3) {
  for (int i = 0; i < kLanes; ++i) {
    out[4 * i] = x0.v[i];
    out[4 * i + 1] = x1.v[i];
    out[4 * i + 2] = x2.v[i];
    out[4 * i + 3] = x3.v[i];
  }
}

// Halves are added to (compared with) halves: lane i with lane i + 8, then 4, 2, 1.
inline float SumLanes(Floats x) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
  }
  return x.v[0];
}
inline float MaxLanes(Floats x) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
  }
  return x.v[0];
}

inline void Prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace weft::kernels::cpu

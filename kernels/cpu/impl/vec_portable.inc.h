// Sixteen numbers at once without intrinsics: the vocabulary that the other *.inc.h files are
// written in. vec_avx2.inc.h and vec_avx512.inc.h offer the same names. Everything here and in all
// *.inc.h is in an anonymous namespace, so that code compiled for one instruction set never serves
// another.

#pragma once

#include <cstdint>
#include <cstring>

namespace weft::kernels::cpu {
namespace {

constexpr int kLanes = 16;
// Rows times one tile (and times two: none) in the Linear kernel; queries and blocks in attention.
// Any values give the same numbers.
constexpr int kOneTileRowsMax = 2;
constexpr int kTwoTileRowsMax = 0;
// Rows of float32 that formats with panels take without one, and at once from one (panel.inc.h).
constexpr int kDirectRowsMax = 1;
constexpr int kPanelRowsMax = 2;
constexpr int kQueriesMax = 2;
constexpr int kScoreBlocks = 1;

// Four quads each: generic vectors of the compiler, which any processor with 128-bit registers has.
using Quad = float __attribute__((vector_size(16)));
using QuadInts = uint32_t __attribute__((vector_size(16)));
using QuadSigned = int32_t __attribute__((vector_size(16)));
constexpr int kQuads = 4;

struct Floats {
  Quad q[kQuads];
};
struct Ints {
  QuadInts q[kQuads];
};
// All ones or all zeros in each lane.
struct Mask {
  QuadSigned q[kQuads];
};

// f(i) for quads i = 0..3.
template <typename Result, typename F>
inline Result Each(F f) {
  return Result{{f(0), f(1), f(2), f(3)}};
}
template <typename F>
inline Floats EachLane(F f) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = f(i);
  Floats r;
  std::memcpy(r.q, lanes, sizeof(lanes));
  return r;
}

inline float ScalarSqrt(float x) { return __builtin_sqrtf(x); }

inline Floats Zero() { return Floats{}; }
inline Floats Set(float x) {
  return Each<Floats>([=](int) { return Quad{x, x, x, x}; });
}
inline Floats Load(const float* p) {
  Floats r;
  std::memcpy(r.q, p, sizeof(r.q));
  return r;
}
inline void Store(float* p, const Floats& x) { std::memcpy(p, x.q, sizeof(x.q)); }
// The first n lanes (all, when n >= 16); the others are zero and their memory is not touched.
inline Floats LoadN(const float* p, int64_t n) {
  if (n >= kLanes) return Load(p);
  Floats r{};
  std::memcpy(r.q, p, static_cast<size_t>(n) * sizeof(float));
  return r;
}
inline void StoreN(float* p, const Floats& x, int64_t n) {
  std::memcpy(p, x.q, static_cast<size_t>(n < kLanes ? n : kLanes) * sizeof(float));
}
inline Floats Add(const Floats& a, const Floats& b) {
  return Each<Floats>([&](int i) { return a.q[i] + b.q[i]; });
}
inline Floats Sub(const Floats& a, const Floats& b) {
  return Each<Floats>([&](int i) { return a.q[i] - b.q[i]; });
}
inline Floats Mul(const Floats& a, const Floats& b) {
  return Each<Floats>([&](int i) { return a.q[i] * b.q[i]; });
}
inline Floats Div(const Floats& a, const Floats& b) {
  return Each<Floats>([&](int i) { return a.q[i] / b.q[i]; });
}
// a * b + c as this instruction set does it fastest: fused, but here rounded twice, because a fused
// one is a library call.
inline Floats MulAdd(const Floats& a, const Floats& b, const Floats& c) {
  return Each<Floats>([&](int i) { return a.q[i] * b.q[i] + c.q[i]; });
}
// a * b + c rounded once, everywhere.
inline Floats Fma(const Floats& a, const Floats& b, const Floats& c) {
  return EachLane([&](int i) {
    return __builtin_fmaf(a.q[i / 4][i % 4], b.q[i / 4][i % 4], c.q[i / 4][i % 4]);
  });
}
// The larger; b when either is NaN.
inline Floats Max(const Floats& a, const Floats& b) {
  return Each<Floats>([&](int i) { return a.q[i] > b.q[i] ? a.q[i] : b.q[i]; });
}
inline Floats Min(const Floats& a, const Floats& b) {
  return Each<Floats>([&](int i) { return a.q[i] < b.q[i] ? a.q[i] : b.q[i]; });
}
inline Mask Greater(const Floats& a, const Floats& b) {
  return Each<Mask>([&](int i) { return a.q[i] > b.q[i]; });
}
inline Mask IsNan(const Floats& a) {
  return Each<Mask>([&](int i) { return a.q[i] != a.q[i]; });
}
inline Mask FirstLanes(int64_t n) {
  const int32_t count = static_cast<int32_t>(n < kLanes ? n : kLanes);
  return Each<Mask>([=](int i) {
    const QuadSigned lanes = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
    return lanes < count;
  });
}
inline uint32_t MaskBits(const Mask& m) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (m.q[i / 4][i % 4] & 1u) << i;
  return bits;
}
inline Floats Select(const Mask& m, const Floats& yes, const Floats& no) {
  return Each<Floats>([&](int i) { return m.q[i] ? yes.q[i] : no.q[i]; });
}
inline Ints SelectInts(const Mask& m, const Ints& yes, const Ints& no) {
  return Each<Ints>([&](int i) { return m.q[i] ? yes.q[i] : no.q[i]; });
}

inline Ints SetInts(uint32_t x) {
  return Each<Ints>([=](int) { return QuadInts{x, x, x, x}; });
}
inline Ints Iota() { return Ints{{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}}; }
inline Ints LoadInts(const void* p) {
  Ints r;
  std::memcpy(r.q, p, sizeof(r.q));
  return r;
}
inline Ints LoadIntsN(const void* p, int64_t n) {
  Ints r{};
  std::memcpy(r.q, p, static_cast<size_t>(n) * 4);
  return r;
}
inline void StoreInts(void* p, const Ints& x) { std::memcpy(p, x.q, sizeof(x.q)); }
inline Ints AddInts(const Ints& a, const Ints& b) {
  return Each<Ints>([&](int i) { return a.q[i] + b.q[i]; });
}
// Of the four bytes of each lane, each on its own.
inline Ints SubBytes(const Ints& a, const Ints& b) {
  // The highest bit of each byte is set for the subtraction, so that none borrows from the next.
  return Each<Ints>([&](int i) {
    return ((a.q[i] | 0x80808080u) - (b.q[i] & 0x7F7F7F7Fu)) ^ ((a.q[i] ^ ~b.q[i]) & 0x80808080u);
  });
}
// The low 16 bits of the products of the two halves of each lane.
inline Ints MulHalves(const Ints& a, const Ints& b) {
  return Each<Ints>([&](int i) {
    return ((a.q[i] * b.q[i]) & 0xFFFFu) | ((a.q[i] >> 16) * (b.q[i] >> 16)) << 16;
  });
}
inline Ints SubInts(const Ints& a, const Ints& b) {
  return Each<Ints>([&](int i) { return a.q[i] - b.q[i]; });
}
inline Ints And(const Ints& a, const Ints& b) {
  return Each<Ints>([&](int i) { return a.q[i] & b.q[i]; });
}
inline Ints Or(const Ints& a, const Ints& b) {
  return Each<Ints>([&](int i) { return a.q[i] | b.q[i]; });
}
inline Ints Xor(const Ints& a, const Ints& b) {
  return Each<Ints>([&](int i) { return a.q[i] ^ b.q[i]; });
}
template <int kBits>
inline Ints ShiftLeft(const Ints& a) {
  return Each<Ints>([&](int i) { return a.q[i] << kBits; });
}
template <int kBits>
inline Ints ShiftRight(const Ints& a) {
  return Each<Ints>([&](int i) { return a.q[i] >> kBits; });
}
template <int kBits>
inline Ints ShiftRightSigned(const Ints& a) {
  return Each<Ints>([&](int i) {
    return reinterpret_cast<QuadInts>(reinterpret_cast<QuadSigned>(a.q[i]) >> kBits);
  });
}
// The same by a number that is known at run time, or after unrolling.
inline Ints ShiftRightBy(const Ints& a, int bits) {
  return Each<Ints>([&](int i) { return a.q[i] >> bits; });
}
// The 64-bit product of each lane with `b`.
inline void MulWide(const Ints& a, uint32_t b, Ints* low, Ints* high) {
  uint32_t lanes[kLanes];
  uint32_t lows[kLanes];
  uint32_t highs[kLanes];
  StoreInts(lanes, a);
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t product = static_cast<uint64_t>(lanes[i]) * b;
    lows[i] = static_cast<uint32_t>(product);
    highs[i] = static_cast<uint32_t>(product >> 32);
  }
  *low = LoadInts(lows);
  *high = LoadInts(highs);
}
// Lanes are signed; exact below 2^24.
inline Floats ToFloats(const Ints& a) {
  return Each<Floats>(
      [&](int i) { return __builtin_convertvector(reinterpret_cast<QuadSigned>(a.q[i]), Quad); });
}
inline Floats AsFloats(const Ints& a) {
  return Each<Floats>([&](int i) { return reinterpret_cast<Quad>(a.q[i]); });
}
inline Ints AsInts(const Floats& a) {
  return Each<Ints>([&](int i) { return reinterpret_cast<QuadInts>(a.q[i]); });
}

// Nibble kShift / 4 of each lane, less kBias.
template <int kShift, int kBias>
inline Floats NibbleFloats(const Ints& words) {
  const Ints nibble = And(ShiftRight<kShift>(words), SetInts(15));
  return ToFloats(kBias == 0 ? nibble : SubInts(nibble, SetInts(kBias)));
}

// 16 numbers to look up by nibble kShift / 4 of each lane.
struct Table16 {
  float values[16];
};
inline Table16 LoadTable16(const float* values) {
  Table16 table;
  std::memcpy(table.values, values, sizeof(table.values));
  return table;
}
template <int kShift>
inline Floats LookUpNibble(const Ints& words, const Table16& table) {
  return EachLane([&](int i) { return table.values[words.q[i / 4][i % 4] >> kShift & 15u]; });
}

// 16 bytes widened to 32 bits.
inline Ints LoadBytes(const uint8_t* p) {
  return Each<Ints>([=](int i) {
    return QuadInts{p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
  });
}
// 16 words widened to 32 bits, and back (the upper halves must be zero).
inline Ints LoadWords(const uint16_t* p) {
  return Each<Ints>([=](int i) {
    return QuadInts{p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
  });
}
inline void StoreWords(uint16_t* p, const Ints& x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint16_t>(x.q[i / 4][i % 4]);
}
// The first n lanes to p[0], p[2], p[4], ..; the words between are not touched.
inline void StoreEvenWords(uint16_t* p, const Ints& x, int64_t n) {
  for (int i = 0; i < kLanes && i < n; ++i) p[2 * i] = static_cast<uint16_t>(x.q[i / 4][i % 4]);
}

// 16 f16 numbers, exactly: the bits moved to the places of float32 are the number times 2^-112, for
// subnormals too.
inline Floats LoadHalfs(const uint8_t* p) {
  uint16_t halfs[kLanes];
  std::memcpy(halfs, p, sizeof(halfs));
  const Ints bits = LoadWords(halfs);
  const Ints magnitude = ShiftLeft<13>(And(bits, SetInts(0x7FFFu)));
  const Floats finite = Mul(AsFloats(magnitude), Set(0x1p112f));
  const Floats special = AsFloats(Or(magnitude, SetInts(0x7F800000u)));
  const Mask is_special = Greater(AsFloats(magnitude), AsFloats(SetInts(0x0F7FFFFFu)));
  const Ints sign = ShiftLeft<16>(And(bits, SetInts(0x8000u)));
  return AsFloats(Or(AsInts(Select(is_special, special, finite)), sign));
}

// 16 numbers as f16, to nearest even. Finite ones of at most 65504, and NaN, only.
inline void StoreHalfs(uint16_t* p, const Floats& x) {
  float values[kLanes];
  Store(values, x);
  for (int i = 0; i < kLanes; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], sizeof(bits));
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7FFFFFFFu;
    if (bits < 0x38800000u) {
      // Subnormal: adding 0.5 rounds to a multiple of 2^-24, which then is the low bits.
      float magnitude;
      std::memcpy(&magnitude, &bits, sizeof(bits));
      magnitude += 0.5f;
      std::memcpy(&bits, &magnitude, sizeof(bits));
      bits -= 0x3F000000u;
    } else if (bits > 0x7F800000u) {
      bits = 0x7E00u;
    } else {
      bits = (bits + 0xFFFu + (bits >> 13 & 1u) - 0x38000000u) >> 13;
    }
    p[i] = static_cast<uint16_t>(sign | bits);
  }
}

// A 64-byte group of packed kQ8_0 (packing.h): bits 8..15 of lane n are the byte p = 0, bits 24..31
// the byte p = 1, for h = 0 and 1.
inline void LoadByteGroup(const uint8_t* p, Ints* h0, Ints* h1) {
  uint32_t first[kLanes];
  uint32_t second[kLanes];
  for (int n = 0; n < kLanes; ++n) {
    const uint8_t* at = p + 16 * (n / 4) + 2 * (n % 4);
    first[n] = static_cast<uint32_t>(at[0]) << 8 | static_cast<uint32_t>(at[1]) << 24;
    second[n] = static_cast<uint32_t>(at[8]) << 8 | static_cast<uint32_t>(at[9]) << 24;
  }
  *h0 = LoadInts(first);
  *h1 = LoadInts(second);
}

// out[4 * i + j] = lane i of x_j.
inline void StoreInterleaved4(float* out, const Floats& x0, const Floats& x1, const Floats& x2,
                              const Floats& x3) {
  for (int i = 0; i < kLanes; ++i) {
    const Quad quad = {x0.q[i / 4][i % 4], x1.q[i / 4][i % 4], x2.q[i / 4][i % 4],
                       x3.q[i / 4][i % 4]};
    std::memcpy(out + 4 * i, &quad, sizeof(quad));
  }
}

// Halves are added to (compared with) halves: lane i with lane i + 8, then 4, 2, 1.
inline float SumLanes(const Floats& x) {
  const Quad four = (x.q[0] + x.q[2]) + (x.q[1] + x.q[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}
inline float MaxLanes(const Floats& x) {
  const Quad low = x.q[0] > x.q[2] ? x.q[0] : x.q[2];
  const Quad high = x.q[1] > x.q[3] ? x.q[1] : x.q[3];
  const Quad four = low > high ? low : high;
  const float even = four[0] > four[2] ? four[0] : four[2];
  const float odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}

inline void Prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace weft::kernels::cpu

// Random numbers of the sampler, to the bit (invariant rng.key): Philox4x32-10, the uniform number
// and the Gumbel noise made from it, and the one polynomial logarithm behind it. Host and device:
// plain C++ for every CPU instruction set, and CUDA. Pure functions, any thread; no state.
//
//   key = seed, counter = (position, token id / 4), lane = token id % 4
//   u = ((x >> 9) + 0.5) * 2^-23, noise = -log(-log u)
//
// All arithmetic is written with explicit multiply, add and fma, so that scalar code, SIMD code and
// CUDA round alike. Vector versions in kernels/cpu/impl/random.inc.h repeat these very steps.

#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define WEFT_HOST_DEVICE static __host__ __device__ __forceinline__
#else
// Internal linkage: a copy compiled with AVX flags must never serve other translation units.
#define WEFT_HOST_DEVICE [[maybe_unused]] static inline
#endif

namespace weft::kernels {

// Philox constants (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

struct PhiloxBlock {
  uint32_t lane[4];
};

// Rounded once each, never contracted by a compiler.
WEFT_HOST_DEVICE float PhiloxMul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

WEFT_HOST_DEVICE float PhiloxAdd(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

WEFT_HOST_DEVICE float PhiloxFma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

WEFT_HOST_DEVICE uint32_t PhiloxBits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

WEFT_HOST_DEVICE float PhiloxFloat(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

// Ten rounds on a 128-bit counter and a 64-bit key.
WEFT_HOST_DEVICE PhiloxBlock Philox4x32(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2,
                                        uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxMultiplier0) * c0;
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxMultiplier1) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return PhiloxBlock{{c0, c1, c2, c3}};
}

// The four random words of tokens 4 * quad .. 4 * quad + 3 at a position of the sequence. Counter
// words, lowest first: position (two words), quad (two words).
WEFT_HOST_DEVICE PhiloxBlock PhiloxTokens(uint64_t seed, uint64_t position, uint64_t quad) {
  return Philox4x32(seed, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                    static_cast<uint32_t>(quad), static_cast<uint32_t>(quad >> 32));
}

// In (0, 1), both ends excluded: the odd multiples of 2^-24.
WEFT_HOST_DEVICE float PhiloxUniform(uint32_t x) {
  return PhiloxMul(PhiloxAdd(static_cast<float>(x >> 9), 0.5f), 0x1p-23f);
}

// Natural logarithm of a positive normal number, within 1 ulp or so; the coefficients are those of
// the Cephes library's logf. x = 2^e * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2).
WEFT_HOST_DEVICE float PolyLog(float x) {
  const uint32_t shifted = PhiloxBits(x) - 0x3F3504F3u;
  const float e = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float f = PhiloxAdd(PhiloxFloat((shifted & 0x007FFFFFu) + 0x3F3504F3u), -1.0f);
  const float ff = PhiloxMul(f, f);
  float y = 7.0376836292e-2f;
  y = PhiloxFma(y, f, -1.1514610310e-1f);
  y = PhiloxFma(y, f, 1.1676998740e-1f);
  y = PhiloxFma(y, f, -1.2420140846e-1f);
  y = PhiloxFma(y, f, 1.4249322787e-1f);
  y = PhiloxFma(y, f, -1.6668057665e-1f);
  y = PhiloxFma(y, f, 2.0000714765e-1f);
  y = PhiloxFma(y, f, -2.4999993993e-1f);
  y = PhiloxFma(y, f, 3.3333331174e-1f);
  y = PhiloxMul(PhiloxMul(y, f), ff);
  y = PhiloxFma(e, -2.12194440e-4f, y);
  y = PhiloxFma(ff, -0.5f, y);
  return PhiloxFma(e, 0.693359375f, PhiloxAdd(f, y));
}

// Standard Gumbel noise of one random word.
WEFT_HOST_DEVICE float GumbelNoise(uint32_t x) { return -PolyLog(-PolyLog(PhiloxUniform(x))); }

// The noise of one token: argmax over tokens of logit / T + noise is a draw from softmax(logit /
// T).
WEFT_HOST_DEVICE float TokenNoise(uint64_t seed, uint64_t position, uint32_t token) {
  return GumbelNoise(PhiloxTokens(seed, position, token / 4).lane[token % 4]);
}

}  // namespace weft::kernels

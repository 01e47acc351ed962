// Philox and Gumbel noise, 64 tokens at a time: the steps of kernels/philox.h on vectors.

#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace weft::kernels::cpu {
namespace {

constexpr int64_t kNoiseTokens = 4 * kLanes;

inline Floats GumbelOfWords(const Ints& x) {
  const Floats u = Mul(Add(ToFloats(ShiftRight<9>(x)), Set(0.5f)), Set(0x1p-23f));
  return Sub(Zero(), Log(Sub(Zero(), Log(u))));
}

// Noise of tokens 4 * quad .. 4 * quad + 63.
inline void NoiseOfQuads(uint64_t quad, uint64_t seed, uint64_t position, float* out) {
  // Below 2^30 quads there is no carry into the upper counter word; ids are 32 bits.
  Ints c[4] = {SetInts(static_cast<uint32_t>(position)),
               SetInts(static_cast<uint32_t>(position >> 32)),
               AddInts(SetInts(static_cast<uint32_t>(quad)), Iota()), SetInts(0)};
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    Ints low0, high0, low1, high1;
    MulWide(c[0], kPhiloxMultiplier0, &low0, &high0);
    MulWide(c[2], kPhiloxMultiplier1, &low1, &high1);
    c[0] = Xor(Xor(high1, c[1]), SetInts(k0));
    c[2] = Xor(Xor(high0, c[3]), SetInts(k1));
    c[1] = low1;
    c[3] = low0;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  StoreInterleaved4(out, GumbelOfWords(c[0]), GumbelOfWords(c[1]), GumbelOfWords(c[2]),
                    GumbelOfWords(c[3]));
}

void GumbelNoiseRow(uint32_t first_id, int64_t count, uint64_t seed, uint64_t position,
                    float* out) {
  alignas(64) float noise[kNoiseTokens];
  // `skip` tokens of the first quad belong to ids below first_id.
  const int64_t skip = first_id % 4;
  for (int64_t begin = -skip; begin < count; begin += kNoiseTokens) {
    NoiseOfQuads(first_id / 4 + static_cast<uint64_t>(begin + skip) / 4, seed, position, noise);
    const int64_t from = begin < 0 ? 0 : begin;
    const int64_t to = begin + kNoiseTokens < count ? begin + kNoiseTokens : count;
    for (int64_t i = from; i < to; ++i) out[i] = noise[i - begin];
  }
}

TokenScore GumbelArgMax(const float* logits, int64_t count, uint32_t first_id, float temperature,
                        uint64_t seed, uint64_t position) {
  alignas(64) float noise[kNoiseTokens + kLanes];
  Best best;
  const Floats divisor = Set(temperature);
  const int64_t skip = first_id % 4;
  for (int64_t begin = -skip; begin < count; begin += kNoiseTokens) {
    NoiseOfQuads(first_id / 4 + static_cast<uint64_t>(begin + skip) / 4, seed, position, noise);
    const int64_t from = begin < 0 ? 0 : begin;
    const int64_t to = begin + kNoiseTokens < count ? begin + kNoiseTokens : count;
    for (int64_t i = from; i < to; i += kLanes) {
      const Floats scaled = Div(LoadN(logits + i, to - i), divisor);
      Floats x = Add(scaled, Load(noise + (i - begin)));
      if (to - i < kLanes) x = Select(FirstLanes(to - i), x, Set(-kInfinity));
      best.Take(x, AddInts(SetInts(static_cast<uint32_t>(i)), Iota()));
    }
  }
  return best.Winner(first_id);
}

}  // namespace
}  // namespace weft::kernels::cpu

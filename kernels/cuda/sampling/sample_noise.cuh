// The best token of a chunk in registers, without noise and with it. Most tokens get no noise, or
// none but a bound of it: those that cannot reach a score already drawn. Device code only.

#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/sample_work.cuh"

namespace weft::kernels::cuda {

struct Tile {
  float4 quad[kTileQuads];
};

// Of non-NaN scores; -infinity for none.
__device__ __forceinline__ float TileMax(const Tile& tile) {
  float best = -kInfinity;
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) best = fmaxf(best, MaxOf(tile.quad[i]));
  return best;
}

// Whether NaN or +infinity is among the thread's part of the chunk.
__device__ __forceinline__ bool IsInvalid(const Tile& tile) {
  bool valid = true;
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    const float4 x = tile.quad[i];
    valid = valid && x.x < kInfinity && x.y < kInfinity && x.z < kInfinity && x.w < kInfinity;
  }
  return !valid;
}

// The lowest id of a token with the score in the thread's part of the chunk.
__device__ __forceinline__ uint32_t IdInTile(const Tile& tile, float best, uint32_t chunk) {
  uint32_t id = 0;
#pragma unroll
  for (uint32_t i = kTileQuads; i-- > 0;) {
    const uint32_t first = QuadId(chunk, i);
    if (tile.quad[i].w == best) id = first + 3;
    if (tile.quad[i].z == best) id = first + 2;
    if (tile.quad[i].y == best) id = first + 1;
    if (tile.quad[i].x == best) id = first;
  }
  return id;
}

// The thread's best token; `best` is TileMax.
__device__ __forceinline__ uint64_t BestOfTile(const Tile& tile, float best, uint32_t chunk) {
  return BestKeyOr(0, best, IdInTile(tile, best, chunk));
}

// Not below any DrawScore of scores up to x with noise up to `noise`, which has 0.06 to spare. The
// share covers the rounding of quotient, product and sums; NaN (infinities) claims nothing.
__device__ __forceinline__ float DrawBound(float x, float inverse, float noise) {
  const float scaled = x * inverse;
  return fmaf(fabsf(scaled), 0x1p-20f, scaled) + noise;
}

// Upper bound of GumbelNoise for words up to `word`: -log u >= 1 - u, so that the noise is at most
// -log(1 - u), and 1 - u = (complement + 0.5) * 2^-23. With kNoiseMax's 0.06 to spare.
__device__ __forceinline__ float NoiseBound(uint32_t word) {
  constexpr float kLog2 = 0.69314718f;
  const float complement = static_cast<float>(~word >> 9) + 0.5f;
  return fmaf(-kLog2, __log2f(complement), 23 * kLog2 + 0.06f);
}

// The thread's best of logit / temperature + noise, or 0 where that is not the chunk's. First every
// thread draws for its best logit; the chunk's best of these is what a token has to reach to be
// drawn for at all: by its logit and the largest noise, then by the quad's best logit and largest
// random word. Tokens that may tie are drawn for. The first half of `scratch` is used.
__device__ __forceinline__ uint64_t BestNoisy(const Tile& tile, const SamplingRow& row,
                                              uint32_t chunk, uint64_t* scratch) {
  const float temperature = row.temperature;
  const uint64_t seed = row.seed;
  const uint64_t position = row.position;
  const float inverse = 1.0f / temperature;
  uint64_t key = 0;
  const float best = TileMax(tile);
  if (best > -kInfinity) {
    const uint32_t id = IdInTile(tile, best, chunk);
    const PhiloxBlock words = PhiloxTokens(seed, position, id / 4);
    key = BestKeyOr(0, DrawScore(best, temperature, WordOf(words, id % 4)), id);
  }
  const float reached = ScoreOfBest(BlockMax64(key, scratch));
#pragma unroll 1
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    const float4 x = i == 0   ? tile.quad[0]
                     : i == 1 ? tile.quad[1]
                     : i == 2 ? tile.quad[2]
                              : tile.quad[3];
    const float quad_best = MaxOf(x);
    if (!(quad_best > -kInfinity)) continue;
    if (DrawBound(quad_best, inverse, kNoiseMax) < reached) continue;
    const uint32_t id = QuadId(chunk, i);
    const PhiloxBlock words = PhiloxTokens(seed, position, id / 4);
    const uint32_t word = max(max(words.lane[0], words.lane[1]), max(words.lane[2], words.lane[3]));
    if (DrawBound(quad_best, inverse, NoiseBound(word)) < reached) continue;
    key = BestKeyOr(key, DrawScore(x.x, temperature, words.lane[0]), id);
    key = BestKeyOr(key, DrawScore(x.y, temperature, words.lane[1]), id + 1);
    key = BestKeyOr(key, DrawScore(x.z, temperature, words.lane[2]), id + 2);
    key = BestKeyOr(key, DrawScore(x.w, temperature, words.lane[3]), id + 3);
  }
  return key;
}

}  // namespace weft::kernels::cuda

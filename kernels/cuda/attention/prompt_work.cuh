// What a block of prompt attention works on, and how a score becomes an exponent. Device code only.

#pragma once

#include <cmath>

#include "kernels/cuda/attention/kv_head.cuh"
#include "kernels/cuda/attention/prompt_attention.h"
#include "kernels/cuda/ptx/mma.cuh"

namespace weft::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// A window wider than any position, and a tile of them, may be subtracted from a position as int.
inline constexpr uint32_t kNoWindow = 0x7fffff00u;

// The general way from a product of query and key to an exponent of two.
struct ScoreBias {
  float factor;  // Of the product: to the exponent, or with a cap to that of e^2x in tanh(x).
  float cap;     // In exponents; 0 = none.
  float slope;   // In exponents a position; 0 = none.

  // tanh as 1 - 2 / (1 + e^2x): an absolute error near 2^-23 at every x, where the hardware's
  // tanh.approx has 2^-11 and a cap of 50 would turn that into 2.5 % of a weight.
  // Rounded where it says so: every copy of this code must give the same bits.
  __device__ __forceinline__ float Exponent(float product, int key_less_position) const {
    float exponent = __fmul_rn(product, factor);
    if (cap > 0) exponent = __fmul_rn(cap, 1 - __fdividef(2.0f, 1 + Exp2(exponent)));
    return fmaf(slope, static_cast<float>(key_less_position), exponent);
  }
};

__device__ __forceinline__ ScoreBias BiasOf(const AttentionParams& params, uint32_t query_head) {
  ScoreBias bias = {params.scale * kLog2E, 0, 0};
  if (params.soft_cap > 0) {
    bias.factor *= 2 / params.soft_cap;
    bias.cap = params.soft_cap * kLog2E;
  }
  if (params.alibi_slopes != nullptr) bias.slope = params.alibi_slopes[query_head] * kLog2E;
  return bias;
}

// What a sink adds to the sum of weights 2^(exponent - maximum); 0 without one. Infinite where the
// sink is all there is: the output is zero then.
__device__ __forceinline__ float SinkWeight(const float* sinks, uint32_t query_head,
                                            float maximum) {
  return sinks != nullptr ? Exp2(__ldg(sinks + query_head) * kLog2E - maximum) : 0.0f;
}

// Some rows of one sequence for one query head.
struct PromptWork {
  size_t first_row;         // In query and out.
  uint32_t rows;            // 0: nothing to do.
  uint32_t first_position;  // Of the first row.
  uint32_t window;          // kNoWindow for none.
  // Keys that any of the rows may see.
  uint32_t key_begin;
  uint32_t key_end;
  uint32_t kv_head;
  const uint32_t* blocks;  // Of the sequence.
  ScoreBias bias;
};

// Rows `offset` .. offset + rows_at_most - 1 of the tile.
__device__ __forceinline__ PromptWork FindWork(const PromptAttentionParams& params, PromptTile tile,
                                               uint32_t offset, uint32_t rows_at_most,
                                               uint32_t query_head) {
  const AttentionParams& attention = params.attention;
  PromptWork work;
  work.rows = 0;
  // On the way together with the loads of lengths.
  const uint32_t kv_head = KvHeadOf(attention, query_head);
  if (tile.sequence == PromptTile::kNone) return work;
  const uint32_t begin = params.row_begin[tile.sequence];
  const uint32_t rows = params.row_begin[tile.sequence + 1] - begin;
  const uint32_t context = attention.context_lengths[tile.sequence];
  const uint32_t first = tile.first_row + offset;
  if (first >= rows) return work;
  work.rows = min(rows - first, rows_at_most);
  work.first_row = size_t{begin} + first;
  work.first_position = context - rows + first;
  work.key_end = work.first_position + work.rows;
  const bool windowed = attention.window != 0 && attention.window < work.key_end;
  work.window = windowed ? attention.window : kNoWindow;
  work.key_begin =
      work.first_position + 1 > work.window ? work.first_position + 1 - work.window : 0;
  work.kv_head = kv_head;
  work.blocks = attention.tables.ids + size_t{tile.sequence} * attention.tables.stride;
  work.bias = BiasOf(attention, query_head);
  return work;
}

}  // namespace weft::kernels::cuda

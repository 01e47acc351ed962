// What decode and prompt attention share: where queries, keys and tables lie, and how scores are
// made. score = scale * (query . key); then soft cap, then ALiBi, then the masks:
//
//   soft cap:  score = soft_cap * tanh(score / soft_cap)
//   ALiBi:     score += slope[query head] * (key position - query position)
//   causal:    key position <= query position
//   window:    key position > query position - window
//   sinks:     exp(sink[query head]) more in the denominator of the softmax (the launches' own
//              params, behind everything that kernels without sinks read)
//
// Sums in float32; weights are rounded to the type of the values before they meet them. Keys and
// values of this step's own rows are in the cache already.

#pragma once

#include "kernels/cuda/kv.h"

namespace weft::kernels::cuda {

struct AttentionParams {
  // [rows, query_heads, head_dim] of `type`, rows query_stride elements apart, 16-byte aligned.
  const void* query = nullptr;
  uint32_t query_stride = 0;
  uint32_t query_heads = 0;
  KvLayer kv;
  BlockTables tables;
  // [sequences]: positions the sequence has after this step, its last row's included.
  const uint32_t* context_lengths = nullptr;
  uint32_t sequences = 0;
  // [kv.kv_heads + 1]: query heads kv_head_begin[k] .. kv_head_begin[k + 1] - 1 use KV head k. (A
  // rank may hold KV heads with groups of different sizes.)
  const uint32_t* kv_head_begin = nullptr;
  // Largest of those groups.
  uint32_t group_max = 0;
  // [query_heads], or null.
  const float* alibi_slopes = nullptr;
  float scale = 0;
  // 0 = none.
  float soft_cap = 0;
  uint32_t window = 0;
  // [rows, query_heads, head_dim] of `type`, contiguous.
  void* out = nullptr;
  // Of query and out; the cache has its own.
  DType type = DType::kBfloat16;
};

}  // namespace weft::kernels::cuda

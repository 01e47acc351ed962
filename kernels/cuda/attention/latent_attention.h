// Attention over a paged cache of latents (shard/model/latent_spec.h): one row of numbers a token
// is the key of every query head, and its first elements are the value. A row of the step belongs
// to a sequence and sees all of it up to its own position, which is in the cache already:
//
//   out[head] = sum over positions of softmax(scale * (query[head] . key)) * key[first value_dim]
//
// Plain: scores and sums in float32 without tensor cores, a block for each row and a few query
// heads, 64 tokens at a time; weights are rounded to the type of the cache before they meet the
// values. Decode rows and rows of chunks are the same to it, so a row's numbers depend on its own
// sequence alone. Reads the keys of what is in sight twice, once more for each few heads, from the
// L2 at best.
//
// Limits: kv_heads 1; head_dim and value_dim multiples of 8, value_dim <= head_dim <= 1024.

#pragma once

#include "kernels/cuda/kv.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kLatentDimMax = 1024;

struct LatentAttentionParams {
  // [rows, query_heads, kv.head_dim] of `type`, contiguous, 16-byte aligned.
  const void* query = nullptr;
  uint32_t query_heads = 0;
  // Of `type`; no values.
  KvLayer kv;
  BlockTables tables;
  // [rows]: position in its sequence, and which row of the block tables that is; kNoSequence
  // gives zeros.
  const uint32_t* positions = nullptr;
  const uint32_t* sequences = nullptr;
  uint32_t rows = 0;
  uint32_t value_dim = 0;
  float scale = 0;
  // [rows, query_heads, value_dim] of `type`, contiguous.
  void* out = nullptr;
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

cudaError_t LatentAttention(const LatentAttentionParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

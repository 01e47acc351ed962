// What stands between the query-key-value product and attention, in one kernel: adds the bias, or
// normalises query and key heads (heads.h), rotates query and key heads by the row's position,
// writes the query and appends key and value to the KV cache. Pairs are half-split, as Hugging
// Face's Llama; for i < rotary_dim / 2:
//
//   out[i]                  = x[i] * cos - x[i + rotary_dim / 2] * sin
//   out[i + rotary_dim / 2] = x[i + rotary_dim / 2] * cos + x[i] * sin
//
// and elements from rotary_dim on pass. float32 inside, rounded once. Moves the row of the product
// in, the query out and key and value into the cache; the rotary table's row comes from cache after
// the first head. Any head size; vector accesses when head_dim, rotary_dim / 2 and both strides are
// multiples of eight.

#pragma once

#include "kernels/cuda/kv.h"

namespace weft::kernels::cuda {

// Of NormHeadsParams.
struct HeadNorm {
  // null: heads are not normalised.
  const void* query = nullptr;
  const void* key = nullptr;
  float weight_offset = 0;
  float epsilon = 0;
};

struct RotateAndAppendParams {
  // [rows, (query_heads + 2 * kv.kv_heads) * kv.head_dim] of `type`: query, key and value heads.
  // Rows qkv_stride elements apart, 16-byte aligned.
  const void* qkv = nullptr;
  uint32_t qkv_stride = 0;
  // [(query_heads + 2 * kv.kv_heads) * kv.head_dim] of `type`, 16-byte aligned, or null.
  const void* bias = nullptr;
  // With it, no bias, and NormsAndRotates. The bits are those of NormHeads in front. Norms, rotary
  // table, positions, sequences and block tables then lie ready: no kernel that may still run
  // writes them.
  HeadNorm head_norm;
  uint32_t query_heads = 0;
  // [positions, rotary_dim / 2] of (cos, sin) of position * inverse frequency, 16-byte aligned;
  // null = no rotation.
  const float2* rotary = nullptr;
  // Elements of a head that are rotated: even, <= kv.head_dim.
  uint32_t rotary_dim = 0;
  // [rows]: position in its sequence, and which row of the block tables that is. No two rows of a
  // call share both.
  const uint32_t* positions = nullptr;
  const uint32_t* sequences = nullptr;
  // [rows, query_heads, kv.head_dim] of `type`, rows query_stride elements apart, 16-byte aligned.
  // Apart from qkv, or in place: the same pointer and stride.
  void* query = nullptr;
  uint32_t query_stride = 0;
  KvLayer kv;
  BlockTables tables;
  uint32_t rows = 0;
  // Of qkv, bias and query; the cache has its own.
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it ends; touches device memory after that, but for what
  // lies ready. Without head norms a dependent kernel behind this one starts when all in front of
  // this one is complete, not before (DecodeAttentionParams::after_append).
  bool dependent = false;
};

// Whether heads of this size, rotated as a whole or not at all, can be normalised on the way.
constexpr bool NormsAndRotates(uint32_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

cudaError_t RotateAndAppend(const RotateAndAppendParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

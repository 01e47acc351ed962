// The KV cache as kernels see it: one layer's blocks and the tables that say which block holds
// which positions of a sequence. Owned by shard/device/cuda; kernels that append write it,
// attention reads it.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

// Tokens in a block of the KV cache.
inline constexpr uint32_t kKvBlockTokens = 64;

// K and V of one layer, each [pieces, kv_heads, kKvBlockTokens, head_dim] of `type`, 128-byte
// aligned: one head of a block is contiguous. Latent attention has no V. An id in a block table
// counts pieces; where blocks of a layer do not lie side by side, ids are further apart than blocks
// (shard/device/cuda/kv_cache.h).
struct KvLayer {
  void* keys = nullptr;
  void* values = nullptr;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  DType type = DType::kBfloat16;
};

// Position p of sequence s lies in block ids[s * stride + p / kKvBlockTokens], at
// p % kKvBlockTokens.
struct BlockTables {
  const uint32_t* ids = nullptr;
  uint32_t stride = 0;
};

// Where rows have the number of their sequence: a row of padding. Its query is written, nothing is
// appended, and no block table is read.
inline constexpr uint32_t kNoSequence = 0xffffffffu;

}  // namespace weft::kernels::cuda

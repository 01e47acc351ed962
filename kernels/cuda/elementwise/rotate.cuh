// The arithmetic and the addresses of rope.h, for the kernels that rotate and append. Device code
// only.

#pragma once

#include "kernels/cuda/elementwise/rope.h"

namespace weft::kernels::cuda {

// `turn`: cosine and sine. Fused by hand: the same bits in every kernel.
__device__ __forceinline__ void RotatePair(float2 turn, float* low, float* high) {
  const float x = *low;
  *low = __fmaf_rn(x, turn.x, -__fmul_rn(*high, turn.y));
  *high = __fmaf_rn(*high, turn.x, __fmul_rn(x, turn.y));
}

// Where a row's keys and values go.
struct CacheRow {
  // False: nowhere, a row of padding.
  bool present = false;
  // Its token of KV head 0, counted through all heads and blocks.
  size_t token = 0;
};

__device__ __forceinline__ CacheRow FindCacheRow(const RotateAndAppendParams& params, uint32_t row,
                                                 uint32_t position) {
  const uint32_t sequence = __ldcg(params.sequences + row);
  if (sequence == kNoSequence) return {};
  const size_t block = __ldcg(params.tables.ids + size_t{sequence} * params.tables.stride +
                              position / kKvBlockTokens);
  return {true, block * params.kv.kv_heads * kKvBlockTokens + position % kKvBlockTokens};
}

// The first element in the cache of key or value head `head`, keys first. REQUIRES: present.
template <typename KvT>
__device__ __forceinline__ KvT* CacheHead(const KvLayer& kv, const CacheRow& row, uint32_t head) {
  const bool is_value = head >= kv.kv_heads;
  const uint32_t kv_head = is_value ? head - kv.kv_heads : head;
  const size_t token = row.token + size_t{kv_head} * kKvBlockTokens;
  return static_cast<KvT*>(is_value ? kv.values : kv.keys) + token * kv.head_dim;
}

}  // namespace weft::kernels::cuda

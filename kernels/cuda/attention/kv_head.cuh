// Which KV head a query head uses, where groups may be of different sizes. Device code only.

#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/reduce.cuh"

namespace weft::kernels::cuda {

// The KV head of a query head: as many as end at or before it. For whole warps; kv_heads loads are
// in flight at once instead of one after the other.
__device__ __forceinline__ uint32_t KvHeadOf(const AttentionParams& params, uint32_t query_head) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t kv_head = 0;
  for (uint32_t first = 0; first < params.kv.kv_heads; first += kWarp) {
    const uint32_t at = first + lane;
    const bool before = at < params.kv.kv_heads && params.kv_head_begin[at + 1] <= query_head;
    kv_head += __popc(__ballot_sync(kAllLanes, before));
  }
  return kv_head;
}

}  // namespace weft::kernels::cuda

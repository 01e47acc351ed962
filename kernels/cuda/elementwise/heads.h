// What some models do to query, key and value before they are rotated:
//
//   NormHeads: head = head / sqrt(mean(head^2) + epsilon) * norm, each query and key head by itself
//   Clip:      x cut to [-limit, limit]; NaN stays NaN
//
// float32 inside, rounded once, in place. A row's numbers do not depend on its neighbours. Moves
// each element in and out once. Any head size. A whole row counts as one head where a model
// normalises what it adds to the residual.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

struct NormHeadsParams {
  // [rows, query_heads + 2 * kv_heads, head_stride] of `type`: query, key and value heads. Rows
  // row_stride elements apart. Values stay as they are.
  void* qkv = nullptr;
  uint32_t row_stride = 0;
  // [head_dim] of `type`; weight_offset is added to every weight.
  const void* query_norm = nullptr;
  const void* key_norm = nullptr;
  float weight_offset = 0;
  uint32_t query_heads = 0;
  uint32_t kv_heads = 0;
  // Elements of a head, and from one head to the next.
  uint32_t head_dim = 0;
  uint32_t head_stride = 0;
  uint32_t rows = 0;
  float epsilon = 0;
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

struct ClipParams {
  // [count] of `type`.
  void* x = nullptr;
  uint64_t count = 0;
  float limit = 0;
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

cudaError_t NormHeads(const NormHeadsParams& params, cudaStream_t stream);
cudaError_t Clip(const ClipParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

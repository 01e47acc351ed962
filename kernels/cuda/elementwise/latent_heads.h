// What latent attention (shard/model/latent_spec.h) does to query heads and latents besides plain
// products and attention itself:
//
//   HeadProduct:  y[row, head, j] = sum_i x[row, head, i] * weight[head, j, i]
//   RotateLatent: the rotated end of each query head goes beside what HeadProduct made of its
//                 beginning, and the latent with the rotated key behind it into the cache
//
// Sums in float32 in an order that depends on the number of inputs alone: a row's numbers do not
// depend on its neighbours. HeadProduct reads the weights once for each eight rows.

#pragma once

#include "kernels/cuda/kv.h"

namespace weft::kernels::cuda {

struct HeadProductParams {
  // [rows, heads, in_dim] of `type`, contiguous, 16-byte aligned; the first `inputs` of a head
  // count.
  const void* in = nullptr;
  uint32_t in_dim = 0;
  // [heads, outputs, inputs] of `type`, 16-byte aligned.
  const void* weight = nullptr;
  // [rows, heads, out_dim] of `type`, contiguous; the first `outputs` of a head are written.
  void* out = nullptr;
  uint32_t out_dim = 0;
  uint32_t rows = 0;
  uint32_t heads = 0;
  // A multiple of 8, up to 1024; so is in_dim.
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

struct RotateLatentParams {
  // [rows, query_heads, in_dim] of `type`, contiguous: the last rotary_dim of a head are rotated.
  const void* in = nullptr;
  uint32_t in_dim = 0;
  // [rows, query_heads, kv.head_dim] of `type`, contiguous: they become the last of a head.
  void* query = nullptr;
  uint32_t query_heads = 0;
  // [rows, kv.head_dim] of `type`: the last rotary_dim are rotated on their way to the cache.
  const void* latent = nullptr;
  // [positions, rotary_dim / 2] of (cos, sin).
  const float2* rotary = nullptr;
  // Even.
  uint32_t rotary_dim = 0;
  // [rows], as in RotateAndAppendParams (rope.h).
  const uint32_t* positions = nullptr;
  const uint32_t* sequences = nullptr;
  // Of `type`; no values, one KV head.
  KvLayer kv;
  BlockTables tables;
  uint32_t rows = 0;
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

cudaError_t HeadProduct(const HeadProductParams& params, cudaStream_t stream);
cudaError_t RotateLatent(const RotateLatentParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

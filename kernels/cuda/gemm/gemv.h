// Matrix products of a decode step of one to eight rows, bound by reading the weights, with what
// stands around them:
//
//   y[r, j] = sum_k x[r, k] * weight[j, k]
//
//   x: `in`, or bf16(norm(residual)), which every block computes again from `residual_in`: no norm
//      kernel in front of the product. RMSNorm or LayerNorm as in norm.h
//   y: with its bias stored, or added to what `out` holds (the residual sum); bf16(act(y)); of a
//      weight whose first half of rows are gates and whose second half are ups, bf16(act(g) * u);
//      or, of query, key and value
//      heads, rotated, the query stored and key and value appended to the cache (rope.h). In the
//      latter two y is rounded to bf16 first: the bits are those of the product and
//      GatedActivation or RotateAndAppend one after the other
//
// Sums in float32 in an order that depends on k alone: a row's bits depend neither on its
// neighbours nor on their number, which also costs nothing: one to eight rows take the same matrix
// instructions. Moves the weight once, [n, k] elements of two bytes; all else is small. Any n; k a
// multiple of 8.
//
// One block per multiprocessor with all of its shared memory, most of it a ring of weights under
// way. All launches let dependents start at once: the next launch's block takes a multiprocessor
// when this one's leaves it and requests its first weights, up to 200 KB, while other blocks of
// this launch still run. They wait for everything before them (griddepcontrol.wait) before they
// touch anything but what is said below to lie ready: weights, and where a row's heads go. A launch
// that is told its successor (`next`) also has the first of that one's weights brought into the L2,
// so that the memory is busy while blocks change.

#pragma once

#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kGemvRowsMax = 8;

// Of GemvParams::workspace.
inline constexpr size_t kGemvWorkspaceBytes = 8;

enum class GemvEpilogue : uint8_t { kStore, kAccumulate, kActivated, kGated, kRotateAppend };

// A later Gemv on the same device, as far as its weights are concerned.
struct GemvNext {
  // Or null: nothing is known. Otherwise as GemvParams has them.
  const void* weight = nullptr;
  GemvEpilogue epilogue = GemvEpilogue::kStore;
  uint32_t n = 0;
  uint32_t k = 0;
  // With kRotateAppend.
  uint32_t head_dim = 0;
};

struct GemvParams {
  // bf16 [n, k], 16-byte aligned; no kernel that may still run writes it.
  const void* weight = nullptr;
  // bf16 [rows, k], 16-byte aligned; not read with residual_in.
  const void* in = nullptr;
  // [rows, k], 16-byte aligned, apart from `out`; or null.
  const float* residual_in = nullptr;
  // bf16 [k], 16-byte aligned, under the same rule as `weight`; with residual_in only.
  const void* norm_weight = nullptr;
  // LayerNorm instead of RMSNorm: the mean of a row is taken from it first.
  bool layer_norm = false;
  // bf16 [k] as norm_weight, or null; with layer_norm only.
  const void* norm_bias = nullptr;
  float epsilon = 0;
  // [rows, n], kGated [rows, n / 2]; `out_stride` elements from row to row. Not with
  // kRotateAppend.
  void* out = nullptr;
  uint32_t out_stride = 0;
  // kAccumulate is always float32; kActivated, kGated and kRotateAppend bf16.
  DType out_type = DType::kBfloat16;
  GemvEpilogue epilogue = GemvEpilogue::kStore;
  // bf16 [n], under the same rule as `weight`, or null; not with kGated or kRotateAppend.
  const void* bias = nullptr;
  // With kActivated and kGated.
  ActivationKind activation = ActivationKind::kSilu;
  // 1 to kGemvRowsMax.
  uint32_t rows = 0;
  // kRotateAppend only: where the heads go. Of all of RotateAndAppendParams but qkv, qkv_stride,
  // rows, type and dependent; bf16 in and out, whole heads rotated or none. Bias, rotary table,
  // positions, sequences and block tables lie ready, under the same rule as `weight`.
  RotateAndAppendParams heads;
  // kGated: even. kRotateAppend: (heads.query_heads + 2 * heads.kv.kv_heads) *
  // heads.kv.head_dim.
  uint32_t n = 0;
  // A multiple of 8.
  uint32_t k = 0;
  // May start before the kernel in front of it in the stream has ended (programmatic stream
  // serialization).
  bool dependent = false;
  // kGemvWorkspaceBytes, 8-byte aligned, zeroed once and then left alone: each launch leaves it
  // zeroed. Only launches of one stream may share it. With it, blocks share the last columns of
  // long products by their speed; null: equally. Results do not depend on it.
  void* workspace = nullptr;
  // A hint: the next product whose weights are worth having in the L2 (60 MB) when this one ends,
  // 8.6 MB of them. Results do not depend on it.
  GemvNext next;
};

// cudaErrorInvalidValue outside the limits above.
cudaError_t Gemv(const GemvParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

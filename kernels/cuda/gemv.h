// Matrix products of a decode step of one to four rows, bound by reading the weights, with what
// stands around them:
//
//   y[r, j] = sum_k x[r, k] * weight[j, k]
//
//   x: `in`, or bf16(residual / sqrt(mean(residual^2) + epsilon) * norm_weight), which every block
//      computes again from `residual_in`: no norm kernel in front of the product
//   y: stored; added to what `out` holds (the residual sum); or, of a weight whose first half of
//      rows are gates and whose second half are ups, bf16(silu(g) * u) with g and u rounded to bf16
//      first, as the product and GatedActivation one after the other round
//
// Sums in float32 in an order that depends on k alone: a row's bits depend neither on its
// neighbours nor on their number. Moves the weight once, [n, k] elements of two bytes; all else is
// small. Any n; k a multiple of 8.
//
// One block per multiprocessor with half of its shared memory, so that the next kernel's block fits
// beside it. Launched as `dependent`, it requests its first weights, 80 KB a multiprocessor, while
// the kernel before it ends. All launches wait for everything before them (griddepcontrol.wait)
// before they touch anything but `weight` and `norm_weight`, and release their dependents when the
// last weights have been requested.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kGemvRowsMax = 4;

enum class GemvEpilogue : uint8_t { kStore, kAccumulate, kGatedSilu };

struct GemvParams {
  // bf16 [n, k], 16-byte aligned; no kernel that may still run writes it.
  const void* weight = nullptr;
  // bf16 [rows, k], 16-byte aligned; not read with residual_in.
  const void* in = nullptr;
  // [rows, k], 16-byte aligned, apart from `out`; or null.
  const float* residual_in = nullptr;
  // bf16 [k], 16-byte aligned, under the same rule as `weight`; with residual_in only.
  const void* norm_weight = nullptr;
  float epsilon = 0;
  // [rows, n], kGatedSilu [rows, n / 2]; `out_stride` elements from row to row.
  void* out = nullptr;
  uint32_t out_stride = 0;
  // kAccumulate is always float32, kGatedSilu bf16.
  DType out_type = DType::kBfloat16;
  GemvEpilogue epilogue = GemvEpilogue::kStore;
  // 1 to kGemvRowsMax.
  uint32_t rows = 0;
  // kGatedSilu: even.
  uint32_t n = 0;
  // A multiple of 8.
  uint32_t k = 0;
  // May start before the kernel in front of it in the stream has ended (programmatic stream
  // serialization).
  bool dependent = false;
};

// cudaErrorInvalidValue outside the limits above.
cudaError_t Gemv(const GemvParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

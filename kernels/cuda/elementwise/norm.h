// RMSNorm and LayerNorm with the residual sum in front of them, one kernel a call:
//
//   residual += delta                          (left out without delta)
//   RMSNorm:   out = residual / sqrt(mean(residual^2) + epsilon) * weight
//   LayerNorm: out = (residual - mean) / sqrt(variance + epsilon) * weight + bias
//
// RmsNormInPlace and LayerNormInPlace put it back into `residual` instead, in float32; they take
// neither delta nor out.
//
// One block a row; a row's numbers do not depend on its neighbours. Moves, per element: residual 4
// bytes (8 with delta), delta, weight and out one element of `type` each. Any hidden size;
// multiples of four up to 16,384 keep the row in registers.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

struct NormParams {
  // [rows, hidden], 16-byte aligned, or null.
  const void* delta = nullptr;
  // [rows, hidden] float32, 16-byte aligned; written when there is a delta.
  float* residual = nullptr;
  // [hidden].
  const void* weight = nullptr;
  // Added to every weight.
  float weight_offset = 0;
  // [hidden], or null; LayerNorm only.
  const void* bias = nullptr;
  // [rows, hidden], 16-byte aligned.
  void* out = nullptr;
  uint32_t rows = 0;
  uint32_t hidden = 0;
  float epsilon = 0;
  // Of delta, weight, bias and out.
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

cudaError_t RmsNorm(const NormParams& params, cudaStream_t stream);
cudaError_t LayerNorm(const NormParams& params, cudaStream_t stream);
cudaError_t RmsNormInPlace(const NormParams& params, cudaStream_t stream);
cudaError_t LayerNormInPlace(const NormParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

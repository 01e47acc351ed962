// The functions between the two products of an MLP, float32 inside and rounded once:
//
//   GatedActivation: out[row, i] = act(in[row, i]) * in[row, columns + i]    (gate first, then up)
//   Activation:      out[row, i] = act(in[row, i] + bias[i])
//
//   SiLU:      x / (1 + exp(-x))
//   GELU tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
//   GELU erf:  x / 2 * (1 + erf(x / sqrt(2)))
//   ReLU:      max(x, 0)
//   Clamped SwiGLU, gated alone: of g = min(gate, limit) and u = up cut to [-limit, limit]
//              g / (1 + exp(-1.702 g)) * (u + 1)
//
// NaN stays NaN. Every element by itself. Moves, per element of the output: two elements in (gated)
// or one, one out. Any number of columns; multiples of 16 bytes take vector accesses.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

enum class ActivationKind : uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu, kClampedSwiglu };

struct GatedActivationParams {
  // [rows, 2 * columns], 16-byte aligned.
  const void* in = nullptr;
  // [rows, columns], 16-byte aligned, apart from `in`.
  void* out = nullptr;
  uint32_t rows = 0;
  uint32_t columns = 0;
  ActivationKind kind = ActivationKind::kSilu;
  // kClampedSwiglu only.
  float limit = 0;
  DType type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

struct ActivationParams {
  // [rows, columns], 16-byte aligned.
  const void* in = nullptr;
  // [columns], 16-byte aligned, or null.
  const void* bias = nullptr;
  // [rows, columns], 16-byte aligned; may be `in`.
  void* out = nullptr;
  uint32_t rows = 0;
  uint32_t columns = 0;
  ActivationKind kind = ActivationKind::kGeluTanh;
  // Of all three.
  DType type = DType::kBfloat16;
  bool dependent = false;
};

cudaError_t GatedActivation(const GatedActivationParams& params, cudaStream_t stream);
cudaError_t Activation(const ActivationParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

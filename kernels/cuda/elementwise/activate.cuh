// The functions of activation.h on one number, float32, for the kernels that apply them where the
// number is made. Device code only.

#pragma once

#include "kernels/cuda/elementwise/activation.h"

namespace weft::kernels::cuda {

// x / (1 + exp(-of)) from the approximate units: the exact functions would take longer than the
// memory. The error is about |x| 2^-23 of the result; where exp overflows, the quotient is zero.
__device__ __forceinline__ float TimesSigmoid(float x, float of) {
  return __fdividef(x, 1.0f + __expf(-of));
}

template <ActivationKind kKind>
__device__ __forceinline__ float Activate(float x) {
  if constexpr (kKind == ActivationKind::kSilu) {
    return TimesSigmoid(x, x);
  } else if constexpr (kKind == ActivationKind::kGeluTanh) {
    // (1 + tanh u) / 2 is the sigmoid of 2 u, without the cancellation at negative u.
    constexpr float kTwiceRootTwoOverPi = 1.5957691216057308f;
    return TimesSigmoid(x, kTwiceRootTwoOverPi * (x + 0.044715f * x * x * x));
  } else if constexpr (kKind == ActivationKind::kGeluErf) {
    constexpr float kRootHalf = 0.70710678118654752f;
    return 0.5f * x * (1.0f + erff(x * kRootHalf));
  } else {
    return x < 0.0f ? 0.0f : x;  // fmaxf would hide a NaN
  }
}

__device__ __forceinline__ float ClampedSwiglu(float gate, float up, float limit) {
  const float g = gate > limit ? limit : gate;  // fminf would hide a NaN
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  return TimesSigmoid(g, 1.702f * g) * (u + 1.0f);
}

__device__ __forceinline__ float Activate(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return Activate<ActivationKind::kSilu>(x);
    case ActivationKind::kGeluTanh:
      return Activate<ActivationKind::kGeluTanh>(x);
    case ActivationKind::kGeluErf:
      return Activate<ActivationKind::kGeluErf>(x);
    case ActivationKind::kRelu:
      return Activate<ActivationKind::kRelu>(x);
    case ActivationKind::kClampedSwiglu:
      break;  // of two numbers (ClampedSwiglu)
  }
  return x;
}

}  // namespace weft::kernels::cuda

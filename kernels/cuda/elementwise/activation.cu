#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/activate.cuh"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr int kThreadsMax = 256;

template <typename T, int kWidth, ActivationKind kKind>
__global__ void __launch_bounds__(kThreadsMax) Elements(GatedActivationParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const size_t row = blockIdx.x;
  const uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
  if (column >= params.columns) return;
  const T* from = static_cast<const T*>(params.in) + row * 2 * params.columns + column;
  float gate[kWidth];
  float up[kWidth];
  Read(from, gate);
  Read(from + params.columns, up);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if constexpr (kKind == ActivationKind::kClampedSwiglu) {
      gate[i] = ClampedSwiglu(gate[i], up[i], params.limit);
    } else {
      gate[i] = Activate<kKind>(gate[i]) * up[i];
    }
  }
  Write(static_cast<T*>(params.out) + row * params.columns + column, gate);
}

template <typename T, int kWidth, ActivationKind kKind>
__global__ void __launch_bounds__(kThreadsMax) Elements(ActivationParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const size_t row = blockIdx.x;
  const uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
  if (column >= params.columns) return;
  const size_t at = row * params.columns + column;
  float x[kWidth];
  Read(static_cast<const T*>(params.in) + at, x);
  if (params.bias != nullptr) {
    float bias[kWidth];
    Read(static_cast<const T*>(params.bias) + column, bias);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] += bias[i];
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) x[i] = Activate<kKind>(x[i]);
  Write(static_cast<T*>(params.out) + at, x);
}

template <typename T, int kWidth, ActivationKind kKind, typename Params>
cudaError_t LaunchWidth(const Params& params, cudaStream_t stream) {
  const uint32_t threads_of_row = (params.columns + kWidth - 1) / kWidth;
  const uint32_t threads =
      threads_of_row >= kThreadsMax ? kThreadsMax : (threads_of_row + kWarp - 1) / kWarp * kWarp;
  const dim3 grid(params.rows, (threads_of_row + threads - 1) / threads);
  void (*const kernel)(Params) = Elements<T, kWidth, kKind>;
  return LaunchKernel(kernel, grid, threads, 0, params.dependent, stream, params);
}

template <typename T, ActivationKind kKind, typename Params>
cudaError_t Launch(const Params& params, cudaStream_t stream) {
  return params.columns % Vector<T>::kSize == 0
             ? LaunchWidth<T, Vector<T>::kSize, kKind>(params, stream)
             : LaunchWidth<T, 1, kKind>(params, stream);
}

template <typename T, typename Params>
cudaError_t DispatchKind(const Params& params, cudaStream_t stream) {
  switch (params.kind) {
    case ActivationKind::kSilu:
      return Launch<T, ActivationKind::kSilu>(params, stream);
    case ActivationKind::kGeluTanh:
      return Launch<T, ActivationKind::kGeluTanh>(params, stream);
    case ActivationKind::kGeluErf:
      return Launch<T, ActivationKind::kGeluErf>(params, stream);
    case ActivationKind::kRelu:
      return Launch<T, ActivationKind::kRelu>(params, stream);
    case ActivationKind::kClampedSwiglu:
      if constexpr (requires { params.limit; }) {
        return Launch<T, ActivationKind::kClampedSwiglu>(params, stream);
      }
      break;
  }
  return cudaErrorInvalidValue;
}

template <typename Params>
cudaError_t Dispatch(const Params& params, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) return cudaSuccess;
  return params.type == DType::kFloat32 ? DispatchKind<float>(params, stream)
                                        : DispatchKind<__nv_bfloat16>(params, stream);
}

}  // namespace

cudaError_t GatedActivation(const GatedActivationParams& params, cudaStream_t stream) {
  return Dispatch(params, stream);
}

cudaError_t Activation(const ActivationParams& params, cudaStream_t stream) {
  return Dispatch(params, stream);
}

}  // namespace weft::kernels::cuda

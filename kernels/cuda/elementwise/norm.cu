#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr int kThreadsMax = 1024;
// Quads a thread may hold: rows of up to 16,384.
constexpr int kQuadsMax = 4;

enum class Kind { kRms, kLayer };

__device__ __forceinline__ float Sum(float4 x) { return (x.x + x.y) + (x.z + x.w); }
__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ __forceinline__ float4 operator+(float4 a, float b) {
  return {a.x + b, a.y + b, a.z + b, a.w + b};
}
__device__ __forceinline__ float4 operator-(float4 a, float b) {
  return {a.x - b, a.y - b, a.z - b, a.w - b};
}
__device__ __forceinline__ float4 operator*(float4 a, float4 b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ __forceinline__ float4 operator*(float4 a, float b) {
  return {a.x * b, a.y * b, a.z * b, a.w * b};
}

// The row stays in registers between the sums and the output.
template <typename T, Kind kKind, int kQuads>
__global__ void __launch_bounds__(kThreadsMax) NormRow(NormParams params) {
  __shared__ float scratch[2][kWarp];
  AllowNextKernel();
  WaitForEarlierKernels();
  const size_t begin = size_t{blockIdx.x} * params.hidden;
  const uint32_t quads = params.hidden / kQuad;
  const T* delta = static_cast<const T*>(params.delta);
  float4 row[kQuads];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t quad = threadIdx.x + i * blockDim.x;
    row[i] = {0, 0, 0, 0};
    if (quad >= quads) continue;
    const size_t at = begin + quad * kQuad;
    row[i] = LoadQuad(params.residual + at);
    if (delta != nullptr) {
      row[i] = row[i] + LoadQuad(delta + at);
      StoreQuad(params.residual + at, row[i]);
    }
    sum += kKind == Kind::kLayer ? Sum(row[i]) : Sum(row[i] * row[i]);
  }
  sum = BlockSum(sum, scratch[0]) / params.hidden;
  if constexpr (kKind == Kind::kLayer) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (threadIdx.x + i * blockDim.x >= quads) continue;
      row[i] = row[i] - sum;
      squares += Sum(row[i] * row[i]);
    }
    sum = BlockSum(squares, scratch[1]) / params.hidden;
  }
  const float scale = rsqrtf(sum + params.epsilon);
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t quad = threadIdx.x + i * blockDim.x;
    if (quad >= quads) continue;
    const float4 weight = LoadQuad(static_cast<const T*>(params.weight) + quad * kQuad);
    float4 out = row[i] * scale * (weight + params.weight_offset);
    if (kKind == Kind::kLayer && params.bias != nullptr) {
      out = out + LoadQuad(static_cast<const T*>(params.bias) + quad * kQuad);
    }
    StoreQuad(static_cast<T*>(params.out) + begin + quad * kQuad, out);
  }
}

// Any size: the row is read from memory again for each pass. With kInPlace the result goes back to
// the residual, and the row is read past the L1, which may hold lines from before the kernel in
// front added to it when launches overlap.
template <typename T, Kind kKind, bool kInPlace>
__global__ void __launch_bounds__(kThreadsMax) NormRowOfAnySize(NormParams params) {
  __shared__ float scratch[2][kWarp];
  AllowNextKernel();
  WaitForEarlierKernels();
  float* residual = params.residual + size_t{blockIdx.x} * params.hidden;
  const auto load = [residual](uint32_t i) {
    return kInPlace ? __ldcg(residual + i) : residual[i];
  };
  const T* delta = static_cast<const T*>(params.delta);
  float sum = 0;
  for (uint32_t i = threadIdx.x; i < params.hidden; i += blockDim.x) {
    float x = load(i);
    if (delta != nullptr) {
      x += ToFloat(delta[size_t{blockIdx.x} * params.hidden + i]);
      residual[i] = x;
    }
    sum += kKind == Kind::kLayer ? x : x * x;
  }
  sum = BlockSum(sum, scratch[0]) / params.hidden;
  float mean = 0;
  if constexpr (kKind == Kind::kLayer) {
    mean = sum;
    float squares = 0;
    for (uint32_t i = threadIdx.x; i < params.hidden; i += blockDim.x) {
      const float x = load(i) - mean;
      squares += x * x;
    }
    sum = BlockSum(squares, scratch[1]) / params.hidden;
  }
  const float scale = rsqrtf(sum + params.epsilon);
  T* out = kInPlace ? nullptr : static_cast<T*>(params.out) + size_t{blockIdx.x} * params.hidden;
  for (uint32_t i = threadIdx.x; i < params.hidden; i += blockDim.x) {
    const float weight = ToFloat(static_cast<const T*>(params.weight)[i]) + params.weight_offset;
    float x = (load(i) - mean) * scale * weight;
    if (kKind == Kind::kLayer && params.bias != nullptr) {
      x += ToFloat(static_cast<const T*>(params.bias)[i]);
    }
    if constexpr (kInPlace) {
      residual[i] = x;
    } else {
      out[i] = FromFloat<T>(x);
    }
  }
}

template <typename T, Kind kKind>
cudaError_t Launch(const NormParams& params, cudaStream_t stream) {
  const uint32_t quads = params.hidden / kQuad;
  if (params.hidden % kQuad != 0 || quads > kThreadsMax * kQuadsMax) {
    return LaunchKernel(NormRowOfAnySize<T, kKind, false>, params.rows, kThreadsMax, 0,
                        params.dependent, stream, params);
  }
  // Few quads a thread, so that all of a row's loads are in flight at once.
  const uint32_t threads = quads >= kThreadsMax ? kThreadsMax : (quads + kWarp - 1) / kWarp * kWarp;
  const uint32_t per_thread = (quads + threads - 1) / threads;
  if (per_thread == 1) {
    return LaunchKernel(NormRow<T, kKind, 1>, params.rows, threads, 0, params.dependent, stream,
                        params);
  }
  if (per_thread == 2) {
    return LaunchKernel(NormRow<T, kKind, 2>, params.rows, threads, 0, params.dependent, stream,
                        params);
  }
  return LaunchKernel(NormRow<T, kKind, kQuadsMax>, params.rows, threads, 0, params.dependent,
                      stream, params);
}

template <Kind kKind>
cudaError_t Dispatch(const NormParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.hidden == 0) return cudaSuccess;
  return params.type == DType::kFloat32 ? Launch<float, kKind>(params, stream)
                                        : Launch<__nv_bfloat16, kKind>(params, stream);
}

template <typename T, Kind kKind>
cudaError_t LaunchInPlace(const NormParams& params, cudaStream_t stream) {
  return LaunchKernel(NormRowOfAnySize<T, kKind, true>, params.rows, kThreadsMax, 0,
                      params.dependent, stream, params);
}

template <Kind kKind>
cudaError_t DispatchInPlace(const NormParams& params, cudaStream_t stream) {
  if (params.delta != nullptr || params.out != nullptr) return cudaErrorInvalidValue;
  if (params.rows == 0 || params.hidden == 0) return cudaSuccess;
  return params.type == DType::kFloat32 ? LaunchInPlace<float, kKind>(params, stream)
                                        : LaunchInPlace<__nv_bfloat16, kKind>(params, stream);
}

}  // namespace

cudaError_t RmsNormInPlace(const NormParams& params, cudaStream_t stream) {
  return DispatchInPlace<Kind::kRms>(params, stream);
}

cudaError_t LayerNormInPlace(const NormParams& params, cudaStream_t stream) {
  return DispatchInPlace<Kind::kLayer>(params, stream);
}

cudaError_t RmsNorm(const NormParams& params, cudaStream_t stream) {
  return Dispatch<Kind::kRms>(params, stream);
}

cudaError_t LayerNorm(const NormParams& params, cudaStream_t stream) {
  return Dispatch<Kind::kLayer>(params, stream);
}

}  // namespace weft::kernels::cuda

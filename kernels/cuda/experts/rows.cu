#include <cuda_runtime.h>

#include "kernels/cuda/experts/rows.h"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    Spread(const SpreadRowsParams params, uint32_t row_quads) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const size_t row = __ldcg(params.row_of_place + blockIdx.x);
  const auto* in = static_cast<const uint4*>(params.in) + row * row_quads;
  auto* out = static_cast<uint4*>(params.out) + size_t{blockIdx.x} * row_quads;
  for (uint32_t i = threadIdx.x; i < row_quads; i += kThreads) out[i] = __ldcg(in + i);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) Scale(const ScaleRowsParams params) {
  __shared__ float sums[kThreads / kWarp];
  AllowNextKernel();
  WaitForEarlierKernels();
  constexpr uint32_t kWidth = Vector<T>::kSize;
  const T* in = static_cast<const T*>(params.in) + size_t{blockIdx.x} * params.hidden;
  const T* weight = static_cast<const T*>(params.weight);
  T* row = static_cast<T*>(params.rows) + size_t{blockIdx.x} * params.hidden;
  float sum = 0.0f;
  for (uint32_t i = threadIdx.x * kWidth; i < params.hidden; i += kThreads * kWidth) {
    const Vector<T> x = LoadFresh(in + i);
    const Vector<T> w = Load(weight + i);
#pragma unroll
    for (uint32_t j = 0; j < kWidth; ++j) sum += ToFloat(x.at[j]) * ToFloat(w.at[j]);
  }
  const float scale = 1.0f / (1.0f + __expf(-BlockSum(sum, sums)));
  for (uint32_t i = threadIdx.x * kWidth; i < params.hidden; i += kThreads * kWidth) {
    Vector<T> x = LoadFresh(row + i);
#pragma unroll
    for (uint32_t j = 0; j < kWidth; ++j) x.at[j] = FromFloat<T>(ToFloat(x.at[j]) * scale);
    Store(row + i, x);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) Combine(const CombineRowsParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  constexpr uint32_t kWidth = Vector<T>::kSize;
  const uint32_t column = (blockIdx.y * kThreads + threadIdx.x) * kWidth;
  if (column >= params.hidden) return;
  const size_t at = size_t{blockIdx.x} * params.hidden + column;
  float sum[kWidth] = {};
  if (params.beside != nullptr) {
    const Vector<T> x = LoadFresh(static_cast<const T*>(params.beside) + at);
#pragma unroll
    for (uint32_t j = 0; j < kWidth; ++j) sum[j] = ToFloat(x.at[j]);
  }
  const size_t first = size_t{blockIdx.x} * params.per_token;
#pragma unroll 4
  for (uint32_t choice = 0; choice < params.per_token; ++choice) {
    const float weight = __ldcg(params.weights + first + choice);
    const size_t place = __ldcg(params.places + first + choice);
    const Vector<T> x =
        LoadFresh(static_cast<const T*>(params.made) + place * params.hidden + column);
#pragma unroll
    for (uint32_t j = 0; j < kWidth; ++j) sum[j] += weight * ToFloat(x.at[j]);
  }
  if (!params.accumulates) {
    Write(static_cast<T*>(params.out) + at, sum);
    return;
  }
  float* out = static_cast<float*>(params.out) + at;
#pragma unroll
  for (uint32_t j = 0; j < kWidth; j += kQuad) {
    const float4 x = __ldcg(reinterpret_cast<const float4*>(out + j));
    StoreQuad(out + j, {x.x + sum[j], x.y + sum[j + 1], x.z + sum[j + 2], x.w + sum[j + 3]});
  }
}

template <typename T>
cudaError_t LaunchCombine(const CombineRowsParams& params, cudaStream_t stream) {
  const uint32_t columns = kThreads * Vector<T>::kSize;
  const dim3 grid(params.rows, (params.hidden + columns - 1) / columns);
  return LaunchKernel(Combine<T>, grid, kThreads, 0, params.dependent, stream, params);
}

}  // namespace

cudaError_t SpreadRows(const SpreadRowsParams& params, cudaStream_t stream) {
  if (params.places == 0) return cudaSuccess;
  if (params.hidden % 8 != 0) return cudaErrorInvalidValue;
  const auto row_quads =
      static_cast<uint32_t>(params.hidden * BytesOf(params.type) / sizeof(uint4));
  return LaunchKernel(Spread, dim3(params.places), kThreads, 0, params.dependent, stream, params,
                      row_quads);
}

cudaError_t ScaleRows(const ScaleRowsParams& params, cudaStream_t stream) {
  if (params.row_count == 0) return cudaSuccess;
  if (params.hidden % 8 != 0) return cudaErrorInvalidValue;
  const dim3 grid(params.row_count);
  return params.type == DType::kFloat32
             ? LaunchKernel(Scale<float>, grid, kThreads, 0, params.dependent, stream, params)
             : LaunchKernel(Scale<__nv_bfloat16>, grid, kThreads, 0, params.dependent, stream,
                            params);
}

cudaError_t CombineRows(const CombineRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  if (params.hidden % 8 != 0) return cudaErrorInvalidValue;
  return params.type == DType::kFloat32 ? LaunchCombine<float>(params, stream)
                                        : LaunchCombine<__nv_bfloat16>(params, stream);
}

}  // namespace weft::kernels::cuda

#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/heads.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kHeadsOfBlock = kThreads / kWarp;

// One warp a head.
template <typename T>
__global__ void __launch_bounds__(kThreads) NormHead(NormHeadsParams params) {
  const uint32_t head = blockIdx.y * kHeadsOfBlock + threadIdx.x / kWarp;
  if (head >= params.query_heads + params.kv_heads) return;
  const uint32_t lane = threadIdx.x % kWarp;
  T* const x = static_cast<T*>(params.qkv) + size_t{blockIdx.x} * params.row_stride +
               size_t{head} * params.head_stride;
  const T* const norm =
      static_cast<const T*>(head < params.query_heads ? params.query_norm : params.key_norm);
  float sum = 0;
  for (uint32_t i = lane; i < params.head_dim; i += kWarp) {
    const float v = ToFloat(x[i]);
    sum += v * v;
  }
  const float scale = rsqrtf(WarpSum(sum) / params.head_dim + params.epsilon);
  for (uint32_t i = lane; i < params.head_dim; i += kWarp) {
    x[i] = FromFloat<T>(ToFloat(x[i]) * scale * (ToFloat(norm[i]) + params.weight_offset));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) ClipElements(ClipParams params) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.count) return;
  T* const at = static_cast<T*>(params.x) + i;
  const float x = ToFloat(*at);
  // fminf and fmaxf would hide a NaN.
  if (x > params.limit) *at = FromFloat<T>(params.limit);
  if (x < -params.limit) *at = FromFloat<T>(-params.limit);
}

}  // namespace

cudaError_t NormHeads(const NormHeadsParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.head_dim == 0) return cudaSuccess;
  const uint32_t heads = params.query_heads + params.kv_heads;
  const dim3 grid(params.rows, (heads + kHeadsOfBlock - 1) / kHeadsOfBlock);
  if (params.type == DType::kFloat32) {
    NormHead<float><<<grid, kThreads, 0, stream>>>(params);
  } else {
    NormHead<__nv_bfloat16><<<grid, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

cudaError_t Clip(const ClipParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  const auto blocks = static_cast<uint32_t>((params.count + kThreads - 1) / kThreads);
  if (params.type == DType::kFloat32) {
    ClipElements<float><<<blocks, kThreads, 0, stream>>>(params);
  } else {
    ClipElements<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda

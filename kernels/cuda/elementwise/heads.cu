#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/heads.h"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kHeadsOfBlock = kThreads / kWarp;

// From this size on a head is a block's work.
constexpr uint32_t kWideHead = 512;

// One warp a head.
template <typename T>
__global__ void __launch_bounds__(kThreads) NormHead(NormHeadsParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t head = blockIdx.y * kHeadsOfBlock + threadIdx.x / kWarp;
  if (head >= params.query_heads + params.kv_heads) return;
  const uint32_t lane = threadIdx.x % kWarp;
  T* const x = static_cast<T*>(params.qkv) + size_t{blockIdx.x} * params.row_stride +
               size_t{head} * params.head_stride;
  const T* const norm =
      static_cast<const T*>(head < params.query_heads ? params.query_norm : params.key_norm);
  float sum = 0;
  for (uint32_t i = lane; i < params.head_dim; i += kWarp) {
    const float v = ToFloat(__ldcg(x + i));
    sum += v * v;
  }
  const float scale = rsqrtf(WarpSum(sum) / params.head_dim + params.epsilon);
  for (uint32_t i = lane; i < params.head_dim; i += kWarp) {
    x[i] = FromFloat<T>(ToFloat(__ldcg(x + i)) * scale * (ToFloat(norm[i]) + params.weight_offset));
  }
}

// One block a head.
template <typename T>
__global__ void __launch_bounds__(kThreads) NormWideHead(NormHeadsParams params) {
  __shared__ float sums[kThreads / kWarp];
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t head = blockIdx.y;
  T* const x = static_cast<T*>(params.qkv) + size_t{blockIdx.x} * params.row_stride +
               size_t{head} * params.head_stride;
  const T* const norm =
      static_cast<const T*>(head < params.query_heads ? params.query_norm : params.key_norm);
  float sum = 0;
  for (uint32_t i = threadIdx.x; i < params.head_dim; i += kThreads) {
    const float v = ToFloat(__ldcg(x + i));
    sum += v * v;
  }
  const float scale = rsqrtf(BlockSum(sum, sums) / params.head_dim + params.epsilon);
  for (uint32_t i = threadIdx.x; i < params.head_dim; i += kThreads) {
    x[i] = FromFloat<T>(ToFloat(__ldcg(x + i)) * scale * (ToFloat(norm[i]) + params.weight_offset));
  }
}

template <typename T>
cudaError_t LaunchNorm(const NormHeadsParams& params, cudaStream_t stream) {
  const uint32_t heads = params.query_heads + params.kv_heads;
  if (params.head_dim >= kWideHead) {
    return LaunchKernel(NormWideHead<T>, dim3(params.rows, heads), kThreads, 0, params.dependent,
                        stream, params);
  }
  const dim3 grid(params.rows, (heads + kHeadsOfBlock - 1) / kHeadsOfBlock);
  return LaunchKernel(NormHead<T>, grid, kThreads, 0, params.dependent, stream, params);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) ClipElements(ClipParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.count) return;
  T* const at = static_cast<T*>(params.x) + i;
  const float x = ToFloat(__ldcg(at));
  // fminf and fmaxf would hide a NaN.
  if (x > params.limit) *at = FromFloat<T>(params.limit);
  if (x < -params.limit) *at = FromFloat<T>(-params.limit);
}

}  // namespace

cudaError_t NormHeads(const NormHeadsParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.head_dim == 0) return cudaSuccess;
  return params.type == DType::kFloat32 ? LaunchNorm<float>(params, stream)
                                        : LaunchNorm<__nv_bfloat16>(params, stream);
}

cudaError_t Clip(const ClipParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  const auto blocks = static_cast<uint32_t>((params.count + kThreads - 1) / kThreads);
  const auto kernel =
      params.type == DType::kFloat32 ? ClipElements<float> : ClipElements<__nv_bfloat16>;
  return LaunchKernel(kernel, dim3(blocks), kThreads, 0, params.dependent, stream, params);
}

}  // namespace weft::kernels::cuda

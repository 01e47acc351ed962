#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/latent_heads.h"
#include "kernels/cuda/elementwise/rotate.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kInputsMax = 1024;
// Rows that a block has in shared memory, and outputs that it makes of them.
constexpr uint32_t kRows = 8;
constexpr uint32_t kOutputs = 64;
constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;

// A warp makes an output of all rows at a time; its lanes share the inputs.
template <typename T>
__global__ void __launch_bounds__(kThreads) MultiplyHead(const HeadProductParams params) {
  __shared__ float rows[kRows][kInputsMax];
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t head = blockIdx.y;
  const uint32_t first_row = blockIdx.z * kRows;
  const uint32_t count = min(kRows, params.rows - first_row);
  const T* const in = static_cast<const T*>(params.in);
  for (uint32_t i = threadIdx.x; i < kRows * params.inputs; i += kThreads) {
    const uint32_t row = i / params.inputs;
    const uint32_t input = i % params.inputs;
    const size_t at = (size_t{first_row + row} * params.heads + head) * params.in_dim + input;
    rows[row][input] = row < count ? ToFloat(__ldcg(in + at)) : 0.0f;
  }
  __syncthreads();
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t end = min((blockIdx.x + 1) * kOutputs, params.outputs);
  for (uint32_t output = blockIdx.x * kOutputs + threadIdx.x / kWarp; output < end;
       output += kWarps) {
    const T* const weight = static_cast<const T*>(params.weight) +
                            (size_t{head} * params.outputs + output) * params.inputs;
    float sums[kRows] = {};
    for (uint32_t at = lane * Vector<T>::kSize; at < params.inputs;
         at += kWarp * Vector<T>::kSize) {
      const Vector<T> part = Load(weight + at);
#pragma unroll
      for (int i = 0; i < Vector<T>::kSize; ++i) {
        const float w = ToFloat(part.at[i]);
#pragma unroll
        for (uint32_t row = 0; row < kRows; ++row) sums[row] += w * rows[row][at + i];
      }
    }
#pragma unroll
    for (uint32_t row = 0; row < kRows; ++row) {
      const float sum = WarpSum(sums[row]);
      if (lane != row || row >= count) continue;
      const size_t at = (size_t{first_row + row} * params.heads + head) * params.out_dim + output;
      static_cast<T*>(params.out)[at] = FromFloat<T>(sum);
    }
  }
}

template <typename T>
__device__ __forceinline__ void RotateTo(const T* from, T* to, uint32_t half, float2 turn) {
  float low = ToFloat(__ldcg(from));
  float high = ToFloat(__ldcg(from + half));
  RotatePair(turn, &low, &high);
  to[0] = FromFloat<T>(low);
  to[half] = FromFloat<T>(high);
}

// A block for each row: threads take pairs of query heads, then the latent's elements, then pairs
// of the key behind it.
template <typename T>
__global__ void __launch_bounds__(kThreads) RotateRow(const RotateLatentParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t row = blockIdx.x;
  const uint32_t half = params.rotary_dim / 2;
  const uint32_t dim = params.kv.head_dim;
  const uint32_t rank = dim - params.rotary_dim;
  const uint32_t position = __ldcg(params.positions + row);
  const float2* const turns = params.rotary + size_t{position} * half;
  const uint32_t query_pairs = params.query_heads * half;
  for (uint32_t i = threadIdx.x; i < query_pairs; i += kThreads) {
    const size_t head = size_t{row} * params.query_heads + i / half;
    const uint32_t pair = i % half;
    const T* const from = static_cast<const T*>(params.in) + head * params.in_dim + params.in_dim -
                          params.rotary_dim + pair;
    RotateTo(from, static_cast<T*>(params.query) + head * dim + rank + pair, half, turns[pair]);
  }
  const uint32_t sequence = __ldcg(params.sequences + row);
  if (sequence == kNoSequence) return;
  const size_t block = __ldcg(params.tables.ids + size_t{sequence} * params.tables.stride +
                              position / kKvBlockTokens);
  T* const to =
      static_cast<T*>(params.kv.keys) + (block * kKvBlockTokens + position % kKvBlockTokens) * dim;
  const T* const latent = static_cast<const T*>(params.latent) + size_t{row} * dim;
  for (uint32_t i = threadIdx.x; i < rank + half; i += kThreads) {
    if (i < rank) {
      to[i] = __ldcg(latent + i);
    } else {
      RotateTo(latent + i, to + i, half, turns[i - rank]);
    }
  }
}

}  // namespace

cudaError_t HeadProduct(const HeadProductParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.heads == 0 || params.outputs == 0) return cudaSuccess;
  if (params.inputs == 0 || params.inputs % 8 != 0 || params.inputs > kInputsMax ||
      params.in_dim < params.inputs || params.out_dim < params.outputs) {
    return cudaErrorInvalidValue;
  }
  const dim3 grid((params.outputs + kOutputs - 1) / kOutputs, params.heads,
                  (params.rows + kRows - 1) / kRows);
  const auto kernel =
      params.type == DType::kFloat32 ? MultiplyHead<float> : MultiplyHead<__nv_bfloat16>;
  return LaunchKernel(kernel, grid, kThreads, 0, params.dependent, stream, params);
}

cudaError_t RotateLatent(const RotateLatentParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  if (params.rotary_dim == 0 || params.rotary_dim % 2 != 0 ||
      params.rotary_dim >= params.kv.head_dim || params.in_dim < params.rotary_dim ||
      params.kv.kv_heads != 1 || params.kv.type != params.type) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = params.type == DType::kFloat32 ? RotateRow<float> : RotateRow<__nv_bfloat16>;
  return LaunchKernel(kernel, dim3(params.rows), kThreads, 0, params.dependent, stream, params);
}

}  // namespace weft::kernels::cuda

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/attention/latent_attention.h"
#include "kernels/cuda/multiprocessors.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;
// Values are summed in pairs of neighbours, so many a thread.
constexpr uint32_t kPairs = kLatentDimMax / 2 / kThreads;

// Shared memory of a block: the queries of its heads in front, kHeads * head_dim.
template <uint32_t kHeads>
struct Shared {
  // Scores of a tile, then weights.
  float scores[kHeads][kKvBlockTokens];
  // What the sums so far are multiplied by.
  float factor[kHeads];
  float total[kHeads];
};

__device__ __forceinline__ float2 LoadPair(const float* from) {
  return __ldcg(reinterpret_cast<const float2*>(from));
}
__device__ __forceinline__ float2 LoadPair(const __nv_bfloat16* from) {
  const uint32_t bits = __ldcg(reinterpret_cast<const uint32_t*>(from));
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits));
}

// A warp: the scores of a token for all heads of the block.
template <typename T, uint32_t kHeads>
__device__ __forceinline__ void ScoreToken(const LatentAttentionParams& params, const T* key,
                                           const float* queries, uint32_t token,
                                           Shared<kHeads>& shared) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t dim = params.kv.head_dim;
  float sums[kHeads] = {};
  for (uint32_t at = lane * Vector<T>::kSize; at < dim; at += kWarp * Vector<T>::kSize) {
    const Vector<T> part = LoadFresh(key + at);
#pragma unroll
    for (uint32_t head = 0; head < kHeads; ++head) {
#pragma unroll
      for (int i = 0; i < Vector<T>::kSize; ++i) {
        sums[head] = __fmaf_rn(queries[head * dim + at + i], ToFloat(part.at[i]), sums[head]);
      }
    }
  }
#pragma unroll
  for (uint32_t head = 0; head < kHeads; ++head) {
    const float sum = WarpSum(sums[head]);
    if (lane == 0) shared.scores[head][token] = sum * params.scale;
  }
}

// A warp: the weights of a head's tile, of which `seen` tokens count.
template <typename T, uint32_t kHeads>
__device__ __forceinline__ void WeighTile(uint32_t head, uint32_t seen, float* maximum,
                                          float* total, Shared<kHeads>& shared) {
  const uint32_t lane = threadIdx.x % kWarp;
  float* const scores = shared.scores[head];
  const float low = lane < seen ? scores[lane] : -INFINITY;
  const float high = lane + kWarp < seen ? scores[lane + kWarp] : -INFINITY;
  const float highest = fmaxf(*maximum, WarpMax(fmaxf(low, high)));
  const float factor = *maximum == highest ? 1.0f : expf(*maximum - highest);
  const float low_weight = expf(low - highest);
  const float high_weight = expf(high - highest);
  *maximum = highest;
  *total = *total * factor + WarpSum(low_weight + high_weight);
  scores[lane] = ToFloat(FromFloat<T>(low_weight));
  scores[lane + kWarp] = ToFloat(FromFloat<T>(high_weight));
  if (lane != 0) return;
  shared.factor[head] = factor;
  shared.total[head] = *total;
}

// All threads: sums = sums * factor + weights * values, of the pairs that the thread has.
template <typename T, uint32_t kHeads>
__device__ __forceinline__ void SumValues(const LatentAttentionParams& params, const T* values,
                                          uint32_t seen, const Shared<kHeads>& shared,
                                          float2 (&sums)[kHeads][kPairs]) {
#pragma unroll
  for (uint32_t pair = 0; pair < kPairs; ++pair) {
    const uint32_t column = 2 * (threadIdx.x + pair * kThreads);
    if (column >= params.value_dim) continue;
#pragma unroll
    for (uint32_t head = 0; head < kHeads; ++head) {
      sums[head][pair].x *= shared.factor[head];
      sums[head][pair].y *= shared.factor[head];
    }
#pragma unroll 8
    for (uint32_t token = 0; token < seen; ++token) {
      const float2 value = LoadPair(values + size_t{token} * params.kv.head_dim + column);
#pragma unroll
      for (uint32_t head = 0; head < kHeads; ++head) {
        const float weight = shared.scores[head][token];
        sums[head][pair].x = __fmaf_rn(weight, value.x, sums[head][pair].x);
        sums[head][pair].y = __fmaf_rn(weight, value.y, sums[head][pair].y);
      }
    }
  }
}

// A block: one row and kHeads heads of it; heads behind the last count as queries of zeros, which
// are not stored.
template <typename T, uint32_t kHeads>
__global__ void __launch_bounds__(kThreads) Attend(const LatentAttentionParams params) {
  extern __shared__ float queries[];
  __shared__ Shared<kHeads> shared;
  static_assert(kHeads <= kWarps);
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t row = blockIdx.x;
  const uint32_t first_head = blockIdx.y * kHeads;
  const uint32_t heads = min(kHeads, params.query_heads - first_head);
  const uint32_t dim = params.kv.head_dim;
  const uint32_t sequence = __ldcg(params.sequences + row);
  const uint32_t length = sequence == kNoSequence ? 0 : __ldcg(params.positions + row) + 1;
  const size_t first = size_t{row} * params.query_heads + first_head;
  const T* const from = static_cast<const T*>(params.query) + first * dim;
  for (uint32_t i = threadIdx.x; i < kHeads * dim; i += kThreads) {
    queries[i] = i < heads * dim ? ToFloat(__ldcg(from + i)) : 0.0f;
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / kWarp;
  // Of the head that the warp weighs.
  float maximum = -INFINITY;
  float total = 0;
  float2 sums[kHeads][kPairs] = {};
  const uint32_t* const blocks = params.tables.ids + size_t{sequence} * params.tables.stride;
  for (uint32_t begin = 0; begin < length; begin += kKvBlockTokens) {
    const uint32_t seen = min(length - begin, kKvBlockTokens);
    const size_t block = __ldcg(blocks + begin / kKvBlockTokens);
    const T* const keys = static_cast<const T*>(params.kv.keys) + block * kKvBlockTokens * dim;
    for (uint32_t token = warp; token < seen; token += kWarps) {
      ScoreToken<T, kHeads>(params, keys + size_t{token} * dim, queries, token, shared);
    }
    __syncthreads();
    if (warp < kHeads) WeighTile<T, kHeads>(warp, seen, &maximum, &total, shared);
    __syncthreads();
    SumValues<T, kHeads>(params, keys, seen, shared, sums);
    __syncthreads();
  }
  T* const out = static_cast<T*>(params.out) + first * params.value_dim;
  for (uint32_t head = 0; head < heads; ++head) {
    const float scale = length > 0 ? 1.0f / shared.total[head] : 0.0f;
#pragma unroll
    for (uint32_t pair = 0; pair < kPairs; ++pair) {
      const uint32_t column = 2 * (threadIdx.x + pair * kThreads);
      if (column >= params.value_dim) continue;
      T* const to = out + size_t{head} * params.value_dim + column;
#pragma unroll
      for (uint32_t h = 0; h < kHeads; ++h) {
        if (h != head) continue;
        to[0] = FromFloat<T>(sums[h][pair].x * scale);
        to[1] = FromFloat<T>(sums[h][pair].y * scale);
      }
    }
  }
}

template <typename T, uint32_t kHeads>
cudaError_t Launch(const LatentAttentionParams& params, cudaStream_t stream) {
  const dim3 grid(params.rows, (params.query_heads + kHeads - 1) / kHeads);
  const size_t bytes = size_t{kHeads} * params.kv.head_dim * sizeof(float);
  return LaunchKernel(Attend<T, kHeads>, grid, kThreads, bytes, params.dependent, stream, params);
}

// Heads share what is read of the keys as long as every multiprocessor has a block. A row's numbers
// are the same either way: multiplications and additions are joined by hand.
template <typename T>
cudaError_t LaunchType(const LatentAttentionParams& params, cudaStream_t stream) {
  constexpr uint32_t kSharing = 4;
  uint32_t multiprocessors = 0;
  const cudaError_t error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  const bool enough = params.rows * params.query_heads / kSharing >= multiprocessors;
  return enough ? Launch<T, kSharing>(params, stream) : Launch<T, 1>(params, stream);
}

}  // namespace

cudaError_t LatentAttention(const LatentAttentionParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.query_heads == 0) return cudaSuccess;
  const uint32_t dim = params.kv.head_dim;
  if (params.kv.kv_heads != 1 || params.kv.type != params.type || dim > kLatentDimMax ||
      dim % 8 != 0 || params.value_dim % 8 != 0 || params.value_dim == 0 ||
      params.value_dim > dim) {
    return cudaErrorInvalidValue;
  }
  return params.type == DType::kFloat32 ? LaunchType<float>(params, stream)
                                        : LaunchType<__nv_bfloat16>(params, stream);
}

}  // namespace weft::kernels::cuda

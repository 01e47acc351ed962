// Decode attention without tensor cores, for float32 queries or a float32 cache: one CTA a query
// head and sequence, 64 tokens at a time. Device code only.

#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/kv_head.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

inline constexpr int kPlainThreads = 128;

// Scores of a block's tokens begin..end - 1; the others' become -infinity. Eight lanes a token.
template <typename Kv, int kDim>
__device__ __forceinline__ void PlainScores(const AttentionParams& params, const Kv* keys,
                                            const float* query, float slope, uint32_t position,
                                            uint32_t query_position, uint32_t begin, uint32_t end,
                                            float* scores) {
  constexpr uint32_t kLanes = 8;
  constexpr uint32_t kVectors = kDim / Vector<Kv>::kSize;
  for (uint32_t token = threadIdx.x / kLanes; token < kKvBlockTokens;
       token += kPlainThreads / kLanes) {
    const bool seen = token >= begin && token < end;
    float sum = 0;
    if (seen) {
#pragma unroll
      for (uint32_t v = threadIdx.x % kLanes; v < kVectors; v += kLanes) {
        const Vector<Kv> key = LoadFresh(keys + size_t{token} * kDim + v * Vector<Kv>::kSize);
#pragma unroll
        for (int i = 0; i < Vector<Kv>::kSize; ++i) {
          sum += query[v * Vector<Kv>::kSize + i] * ToFloat(key.at[i]);
        }
      }
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    if (threadIdx.x % kLanes != 0) continue;
    float score = sum * params.scale;
    if (params.soft_cap != 0) score = params.soft_cap * tanhf(score / params.soft_cap);
    score += slope * static_cast<float>(static_cast<int>(position + token - query_position));
    scores[token] = seen ? score : -INFINITY;
  }
}

template <typename T, typename Kv, int kDim, bool kSinks>
__global__ void __launch_bounds__(kPlainThreads, 8)
    PlainDecode(const AttentionParams params, const float* sinks) {
  constexpr int kColumns = (kDim + kPlainThreads - 1) / kPlainThreads;
  __shared__ float query[kDim];
  __shared__ float scores[kKvBlockTokens];
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t head = blockIdx.x;
  const uint32_t sequence = blockIdx.y;
  const uint32_t length = __ldcg(params.context_lengths + sequence);
  const uint32_t first = params.window != 0 && length > params.window ? length - params.window : 0;
  const uint32_t kv_head = KvHeadOf(params, head);
  const float slope = params.alibi_slopes != nullptr ? params.alibi_slopes[head] : 0.0f;
  const T* from = static_cast<const T*>(params.query) + size_t{sequence} * params.query_stride +
                  size_t{head} * kDim;
  for (int i = threadIdx.x; i < kDim; i += kPlainThreads) query[i] = ToFloat(__ldcg(from + i));
  __syncthreads();
  float maximum = -INFINITY;
  float total = 0;
  float out[kColumns] = {};
  for (uint32_t block = first / kKvBlockTokens; block * kKvBlockTokens < length; ++block) {
    const uint32_t position = block * kKvBlockTokens;
    const uint32_t begin = first > position ? first - position : 0;
    const uint32_t end = min(length - position, kKvBlockTokens);
    const uint32_t id = __ldcg(params.tables.ids + size_t{sequence} * params.tables.stride + block);
    const size_t offset = (size_t{id} * params.kv.kv_heads + kv_head) * kKvBlockTokens * kDim;
    PlainScores<Kv, kDim>(params, static_cast<const Kv*>(params.kv.keys) + offset, query, slope,
                          position, length - 1, begin, end, scores);
    __syncthreads();
    const float low = scores[threadIdx.x % kWarp];
    const float high = scores[threadIdx.x % kWarp + kWarp];
    const float highest = fmaxf(maximum, WarpMax(fmaxf(low, high)));
    const float factor = maximum == highest ? 1.0f : expf(maximum - highest);
    maximum = highest;
    total = total * factor + WarpSum(expf(low - highest) + expf(high - highest));
    const Kv* values = static_cast<const Kv*>(params.kv.values) + offset;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t column = threadIdx.x + c * kPlainThreads;
      if (column >= kDim) continue;
      float sum = out[c] * factor;
#pragma unroll 8
      for (uint32_t token = begin; token < end; ++token) {
        const float weight = ToFloat(FromFloat<Kv>(expf(scores[token] - highest)));
        sum += weight * ToFloat(__ldcg(values + size_t{token} * kDim + column));
      }
      out[c] = sum;
    }
    __syncthreads();
  }
  if (kSinks) total += expf(sinks[head] - maximum);
  T* to = static_cast<T*>(params.out) + (size_t{sequence} * params.query_heads + head) * kDim;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const uint32_t column = threadIdx.x + c * kPlainThreads;
    if (column < kDim) to[column] = FromFloat<T>(length == 0 ? 0.0f : out[c] / total);
  }
}

}  // namespace weft::kernels::cuda

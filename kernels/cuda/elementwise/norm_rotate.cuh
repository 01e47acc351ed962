// RotateAndAppend of models whose query and key heads are normalised before: one warp a head, in
// one kernel. Device code only.

#pragma once

#include "kernels/cuda/elementwise/rotate.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

inline constexpr uint32_t kNormRotateThreads = 256;
inline constexpr uint32_t kNormRotateHeads = kNormRotateThreads / kWarp;

// One warp a head of 64 * kPairs elements. Lane l has the pairs l, l + 32, ... and takes what it
// can before the kernel in front ends.
template <typename T, typename KvT, int kPairs>
class NormRotateHead {
 public:
  __device__ __forceinline__ NormRotateHead(const RotateAndAppendParams& params, uint32_t row,
                                            uint32_t head)
      : row_(row), head_(head), normed_(head < params.query_heads + params.kv.kv_heads) {
    const uint32_t position = __ldcg(params.positions + row);
    if (head >= params.query_heads) place_ = FindCacheRow(params, row, position);
    if (!normed_) return;
    const auto* const norm = static_cast<const T*>(
        head < params.query_heads ? params.head_norm.query : params.head_norm.key);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low_norm_[i] = ToFloat(norm[Pair(i)]) + params.head_norm.weight_offset;
      high_norm_[i] = ToFloat(norm[Pair(i) + kHalf]) + params.head_norm.weight_offset;
      if (params.rotary_dim == 0) continue;
      turns_[i] = params.rotary[size_t{position} * kHalf + Pair(i)];
    }
  }

  __device__ __forceinline__ void Run(const RotateAndAppendParams& params) {
    const T* const from =
        static_cast<const T*>(params.qkv) + size_t{row_} * params.qkv_stride + head_ * 2 * kHalf;
    float low[kPairs];
    float high[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low[i] = ToFloat(__ldcg(from + Pair(i)));
      high[i] = ToFloat(__ldcg(from + Pair(i) + kHalf));
    }
    if (normed_) Normalise(params, low, high);
    if (head_ < params.query_heads) {
      Store(static_cast<T*>(params.query) + size_t{row_} * params.query_stride + head_ * 2 * kHalf,
            low, high);
    } else if (place_.present) {
      Store(CacheHead<KvT>(params.kv, place_, head_ - params.query_heads), low, high);
    }
  }

 private:
  static constexpr uint32_t kHalf = kWarp * kPairs;

  static __device__ __forceinline__ uint32_t Pair(int i) { return threadIdx.x % kWarp + i * kWarp; }

  // As NormHeads and RotateAndAppend do it one after the other, to the bit: sums in the same order,
  // rounded between.
  __device__ __forceinline__ void Normalise(const RotateAndAppendParams& params,
                                            float (&low)[kPairs], float (&high)[kPairs]) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) sum += low[i] * low[i];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) sum += high[i] * high[i];
    const float scale = rsqrtf(WarpSum(sum) / (2 * kHalf) + params.head_norm.epsilon);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low[i] = ToFloat(FromFloat<T>(low[i] * scale * low_norm_[i]));
      high[i] = ToFloat(FromFloat<T>(high[i] * scale * high_norm_[i]));
      if (params.rotary_dim > 0) RotatePair(turns_[i], &low[i], &high[i]);
    }
  }

  template <typename To>
  static __device__ __forceinline__ void Store(To* to, const float (&low)[kPairs],
                                               const float (&high)[kPairs]) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      to[Pair(i)] = FromFloat<To>(low[i]);
      to[Pair(i) + kHalf] = FromFloat<To>(high[i]);
    }
  }

  const uint32_t row_;
  const uint32_t head_;
  // Value heads are not.
  const bool normed_;
  CacheRow place_;
  float low_norm_[kPairs];
  float high_norm_[kPairs];
  float2 turns_[kPairs];
};

template <typename T, typename KvT, int kPairs>
__global__ void __launch_bounds__(kNormRotateThreads) NormRotate(RotateAndAppendParams params) {
  const uint32_t head = blockIdx.y * kNormRotateHeads + threadIdx.x / kWarp;
  const bool is_there = head < params.query_heads + 2 * params.kv.kv_heads;
  // A warp that has no head looks at the last one, and stops.
  NormRotateHead<T, KvT, kPairs> work(
      params, blockIdx.x, is_there ? head : params.query_heads + 2 * params.kv.kv_heads - 1);
  AllowNextKernel();
  WaitForEarlierKernels();
  if (is_there) work.Run(params);
}

}  // namespace weft::kernels::cuda

// Prompt attention for every type and head size, in float32 without tensor cores: a block has 16
// query rows of one head, four a warp; keys, then values, of 64 positions lie in shared memory as
// float. In the scores a lane has two keys, in the output dimensions 32 apart. Device code only.

#pragma once

#include "kernels/cuda/attention/prompt_work.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

inline constexpr int kPlainThreads = 128;
inline constexpr int kPlainWarpRows = 4;
inline constexpr int kPlainRows = kPlainThreads / kWarp * kPlainWarpRows;
inline constexpr uint32_t kPlainHeadDimMax = 256;
inline constexpr int kPlainDims = kPlainHeadDimMax / kWarp;

// Floats between keys: 16 bytes more than a row, so that a quarter warp's 16-byte reads of eight
// neighbouring keys fall into different banks.
__host__ __device__ inline constexpr uint32_t PlainStride(uint32_t head_dim) {
  return head_dim + 4;
}
inline constexpr uint32_t PlainSharedBytes(uint32_t head_dim) {
  return (kPlainRows * head_dim + kKvBlockTokens * PlainStride(head_dim) +
          kPlainRows * kKvBlockTokens) *
         static_cast<uint32_t>(sizeof(float));
}

// Rows [valid_begin, valid_end) of `from` as float; zeros in the place of the others.
template <typename T>
__device__ __forceinline__ void LoadRows(float* to, uint32_t to_stride, const T* from,
                                         size_t from_stride, uint32_t rows, uint32_t head_dim,
                                         uint32_t valid_begin, uint32_t valid_end) {
  constexpr uint32_t kSize = Vector<T>::kSize;
  const uint32_t vectors = head_dim / kSize;
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < rows * vectors; i += kPlainThreads) {
    const uint32_t row = i / vectors;
    const uint32_t column = i % vectors * kSize;
    const bool valid = row >= valid_begin && row < valid_end;
    Vector<T> values = {};
    if (valid) values = Load(from + row * from_stride + column);
#pragma unroll
    for (uint32_t j = 0; j < kSize; ++j) to[row * to_stride + column + j] = ToFloat(values.at[j]);
  }
}

struct PlainState {
  float out[kPlainWarpRows][kPlainDims];
  float row_max[kPlainWarpRows];
  float row_sum[kPlainWarpRows];
};

__device__ __forceinline__ float Dot(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// Exponents of this lane's keys (lane and lane + 32 of the tile) for the warp's rows.
__device__ __forceinline__ void PlainScores(float (&scores)[kPlainWarpRows][2], const float* query,
                                            const float* keys, uint32_t head_dim) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t stride = PlainStride(head_dim);
#pragma unroll
  for (int r = 0; r < kPlainWarpRows; ++r) scores[r][0] = scores[r][1] = 0;
#pragma unroll 2
  for (uint32_t d = 0; d < head_dim; d += 4) {
    const float4 low = *reinterpret_cast<const float4*>(keys + lane * stride + d);
    const float4 high = *reinterpret_cast<const float4*>(keys + (lane + kWarp) * stride + d);
#pragma unroll
    for (int r = 0; r < kPlainWarpRows; ++r) {
      const float4 q = *reinterpret_cast<const float4*>(query + r * head_dim + d);
      scores[r][0] = Dot(q, low, scores[r][0]);
      scores[r][1] = Dot(q, high, scores[r][1]);
    }
  }
}

// Online softmax; leaves the weights, rounded to the type of the values, in `weights`.
template <typename Kv>
__device__ __forceinline__ void PlainSoften(PlainState& state, float* weights,
                                            float (&scores)[kPlainWarpRows][2],
                                            const ScoreBias& bias, uint32_t first_key,
                                            uint32_t first_position, uint32_t window) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < kPlainWarpRows; ++r) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int distance =
          static_cast<int>(first_position + r) - static_cast<int>(first_key + lane + i * kWarp);
      const bool seen = distance >= 0 && distance < static_cast<int>(window);
      scores[r][i] = seen ? bias.Exponent(scores[r][i], -distance) : -INFINITY;
    }
    const float top = fmaxf(state.row_max[r], WarpMax(fmaxf(scores[r][0], scores[r][1])));
    const float base = top == -INFINITY ? 0.0f : top;
    const float rescale = Exp2(state.row_max[r] - base);
    const float low = Exp2(scores[r][0] - base);
    const float high = Exp2(scores[r][1] - base);
    state.row_max[r] = top;
    state.row_sum[r] = state.row_sum[r] * rescale + WarpSum(low + high);
    weights[r * kKvBlockTokens + lane] = ToFloat(FromFloat<Kv>(low));
    weights[r * kKvBlockTokens + lane + kWarp] = ToFloat(FromFloat<Kv>(high));
#pragma unroll
    for (int i = 0; i < kPlainDims; ++i) state.out[r][i] *= rescale;
  }
}

__device__ __forceinline__ void PlainValues(PlainState& state, const float* weights,
                                            const float* values, uint32_t head_dim) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t stride = PlainStride(head_dim);
#pragma unroll 2
  for (uint32_t key = 0; key < kKvBlockTokens; ++key) {
#pragma unroll
    for (int i = 0; i < kPlainDims; ++i) {
      const uint32_t dim = lane + i * kWarp;
      const float value = dim < head_dim ? values[key * stride + dim] : 0.0f;
#pragma unroll
      for (int r = 0; r < kPlainWarpRows; ++r) {
        state.out[r][i] = fmaf(weights[r * kKvBlockTokens + key], value, state.out[r][i]);
      }
    }
  }
}

template <bool kSinks, typename T>
__device__ __forceinline__ void PlainStore(const PlainState& state, const float* sinks, T* out,
                                           size_t out_stride, uint32_t rows, uint32_t head_dim) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < kPlainWarpRows; ++r) {
    if (static_cast<uint32_t>(r) >= rows) break;
    const float sum = kSinks ? state.row_sum[r] + SinkWeight(sinks, blockIdx.x, state.row_max[r])
                             : state.row_sum[r];
    const float inverse = 1 / sum;
#pragma unroll
    for (int i = 0; i < kPlainDims; ++i) {
      const uint32_t dim = lane + i * kWarp;
      if (dim < head_dim) out[r * out_stride + dim] = FromFloat<T>(state.out[r][i] * inverse);
    }
  }
}

// Grid: query heads x entries of the work list x kPromptTileRows / kPlainRows.
template <typename T, typename Kv, bool kSinks>
__global__ void __launch_bounds__(kPlainThreads)
    PromptAttentionPlain(PromptAttentionParams params) {
  extern __shared__ __align__(16) float shared_floats[];
  const AttentionParams& attention = params.attention;
  const PromptWork work =
      FindWork(params, params.tiles[blockIdx.y], blockIdx.z * kPlainRows, kPlainRows, blockIdx.x);
  if (work.rows == 0) return;
  const uint32_t head_dim = attention.kv.head_dim;
  const uint32_t first_row = threadIdx.x / kWarp * kPlainWarpRows;  // The warp's.
  float* query = shared_floats;
  float* tokens = query + kPlainRows * head_dim;
  float* weights = tokens + kKvBlockTokens * PlainStride(head_dim) + first_row * kKvBlockTokens;
  const size_t query_at = work.first_row * attention.query_stride + blockIdx.x * head_dim;
  LoadRows(query, head_dim, static_cast<const T*>(attention.query) + query_at,
           attention.query_stride, kPlainRows, head_dim, 0, work.rows);
  PlainState state = {};
#pragma unroll
  for (int r = 0; r < kPlainWarpRows; ++r) state.row_max[r] = -INFINITY;
  for (uint32_t first_key = work.key_begin / kKvBlockTokens * kKvBlockTokens;
       first_key < work.key_end; first_key += kKvBlockTokens) {
    const uint32_t block = work.blocks[first_key / kKvBlockTokens];
    const size_t at =
        (size_t{block} * attention.kv.kv_heads + work.kv_head) * kKvBlockTokens * head_dim;
    const uint32_t begin = work.key_begin > first_key ? work.key_begin - first_key : 0;
    const uint32_t end = work.key_end - first_key;
    __syncthreads();  // All warps have used the values of the tile before.
    LoadRows(tokens, PlainStride(head_dim), static_cast<const Kv*>(attention.kv.keys) + at,
             head_dim, kKvBlockTokens, head_dim, begin, end);
    __syncthreads();
    float scores[kPlainWarpRows][2];
    PlainScores(scores, query + first_row * head_dim, tokens, head_dim);
    PlainSoften<Kv>(state, weights, scores, work.bias, first_key, work.first_position + first_row,
                    work.window);
    __syncthreads();  // All warps have used the keys; the weights are there for the warp.
    LoadRows(tokens, PlainStride(head_dim), static_cast<const Kv*>(attention.kv.values) + at,
             head_dim, kKvBlockTokens, head_dim, begin, end);
    __syncthreads();
    PlainValues(state, weights, tokens, head_dim);
  }
  if (first_row >= work.rows) return;
  const size_t out_stride = size_t{attention.query_heads} * head_dim;
  PlainStore<kSinks>(state, params.sinks,
                     static_cast<T*>(attention.out) + (work.first_row + first_row) * out_stride +
                         blockIdx.x * head_dim,
                     out_stride, work.rows - first_row, head_dim);
}

}  // namespace weft::kernels::cuda

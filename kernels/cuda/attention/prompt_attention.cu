#include "kernels/cuda/attention/prompt_attention.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/attention/prompt_plain.cuh"
#include "kernels/cuda/attention/prompt_tile.cuh"
#include "kernels/cuda/attention/prompt_wgmma.cuh"
#include "kernels/cuda/multiprocessors.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kPlanThreads = 1024;
// Classes of tiles by the keys they see.
constexpr uint32_t kPlanClasses = 256;
// Largest second dimension of a grid.
constexpr uint32_t kTilesMax = 65535;

// Calls visit(sequence, first_row, keys of the tile's last row) for every tile; a warp takes a
// sequence, its lanes the sequence's tiles.
template <typename Visit>
__device__ __forceinline__ void ForEachTile(const PromptAttentionParams& params, Visit visit) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t s = threadIdx.x / kWarp; s < params.attention.sequences;
       s += kPlanThreads / kWarp) {
    const uint32_t rows = params.row_begin[s + 1] - params.row_begin[s];
    const uint32_t context = params.attention.context_lengths[s];
    for (uint32_t first = lane * kPromptTileRows; first < rows; first += kWarp * kPromptTileRows) {
      visit(s, first, context - rows + min(first + kPromptTileRows, rows));
    }
  }
}

// One block. A counting sort by keys, most first. Which of two tiles of a class comes first is left
// to chance; the numbers that attention computes do not depend on it.
__global__ void __launch_bounds__(kPlanThreads)
    PlanTiles(PromptAttentionParams params, uint32_t tiles_max) {
  __shared__ uint32_t next[kPlanClasses];
  __shared__ uint32_t keys_max;
  if (threadIdx.x == 0) keys_max = 1;
  if (threadIdx.x < kPlanClasses) next[threadIdx.x] = 0;
  for (uint32_t i = threadIdx.x; i < tiles_max; i += kPlanThreads) {
    params.tiles[i] = {PromptTile::kNone, 0};
  }
  __syncthreads();
  ForEachTile(params, [&](uint32_t, uint32_t, uint32_t keys) { atomicMax(&keys_max, keys); });
  __syncthreads();
  const uint64_t most = keys_max;
  const auto class_of = [most](uint32_t keys) {
    return static_cast<uint32_t>((most - keys) * (kPlanClasses - 1) / most);
  };
  ForEachTile(params,
              [&](uint32_t, uint32_t, uint32_t keys) { atomicAdd(&next[class_of(keys)], 1); });
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t begin = 0;
    for (uint32_t i = 0; i < kPlanClasses; ++i) {
      const uint32_t count = next[i];
      next[i] = begin;
      begin += count;
    }
    if (params.counters != nullptr) {
      params.counters[0] = 0;
      params.counters[1] = min(begin, tiles_max);
    }
  }
  __syncthreads();
  ForEachTile(params, [&](uint32_t sequence, uint32_t first_row, uint32_t keys) {
    const uint32_t at = atomicAdd(&next[class_of(keys)], 1);
    if (at < tiles_max) params.tiles[at] = {sequence, first_row};
  });
}

template <int kHeadDim, bool kBias>
cudaError_t LaunchTiles(const PromptAttentionParams& params, uint32_t tiles, cudaStream_t stream) {
  using Shape = PromptShape<kHeadDim>;
  const cudaError_t error =
      cudaFuncSetAttribute(PromptAttentionTiles<kHeadDim, kBias>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  PromptAttentionTiles<kHeadDim, kBias>
      <<<dim3(params.attention.query_heads, tiles), Shape::kThreads, Shape::kSharedBytes, stream>>>(
          params);
  return cudaGetLastError();
}

// By warpgroup products if there are maps for the copies: a block has a multiprocessor to itself.
template <int kHeadDim, bool kBias>
cudaError_t LaunchWgmma(const PromptAttentionParams& params, uint32_t tiles, cudaStream_t stream) {
  using Shape = WgmmaShape<kHeadDim>;
  if (params.tensor_maps == nullptr) return LaunchTiles<kHeadDim, kBias>(params, tiles, stream);
  if (params.counters == nullptr) return cudaErrorInvalidValue;
  uint32_t multiprocessors = 0;
  cudaError_t error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(PromptAttentionWgmma<kHeadDim, kBias>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  const uint64_t items = uint64_t{tiles} * params.attention.query_heads;
  const auto grid = static_cast<uint32_t>(std::min(items, uint64_t{multiprocessors}));
  PromptAttentionWgmma<kHeadDim, kBias>
      <<<grid, Shape::kThreads, Shape::kSharedBytes, stream>>>(params, *params.tensor_maps);
  return cudaGetLastError();
}

template <typename T, typename Kv, bool kSinks>
cudaError_t LaunchPlainOf(const PromptAttentionParams& params, uint32_t tiles,
                          cudaStream_t stream) {
  const uint32_t shared_bytes = PlainSharedBytes(params.attention.kv.head_dim);
  const cudaError_t error = cudaFuncSetAttribute(
      PromptAttentionPlain<T, Kv, kSinks>, cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(PlainSharedBytes(kPlainHeadDimMax)));
  if (error != cudaSuccess) return error;
  const dim3 grid(params.attention.query_heads, tiles, kPromptTileRows / kPlainRows);
  PromptAttentionPlain<T, Kv, kSinks><<<grid, kPlainThreads, shared_bytes, stream>>>(params);
  return cudaGetLastError();
}

template <typename T, typename Kv>
cudaError_t LaunchPlain(const PromptAttentionParams& params, uint32_t tiles, cudaStream_t stream) {
  return params.sinks != nullptr ? LaunchPlainOf<T, Kv, true>(params, tiles, stream)
                                 : LaunchPlainOf<T, Kv, false>(params, tiles, stream);
}

template <bool kBias>
cudaError_t DispatchHeadDim(const PromptAttentionParams& params, uint32_t tiles,
                            cudaStream_t stream) {
  switch (params.attention.kv.head_dim) {
    case 64:
      return LaunchWgmma<64, kBias>(params, tiles, stream);
    case 80:
      return LaunchTiles<80, kBias>(params, tiles, stream);
    case 96:
      return LaunchTiles<96, kBias>(params, tiles, stream);
    case 128:
      return LaunchWgmma<128, kBias>(params, tiles, stream);
    case 256:
      return LaunchWgmma<256, kBias>(params, tiles, stream);
    default:
      return LaunchPlain<__nv_bfloat16, __nv_bfloat16>(params, tiles, stream);
  }
}

}  // namespace

cudaError_t PlanPromptAttention(const PromptAttentionParams& params, cudaStream_t stream) {
  const uint32_t tiles = PromptTilesMax(params.rows_max, params.attention.sequences);
  if (tiles == 0) return cudaSuccess;
  PlanTiles<<<1, kPlanThreads, 0, stream>>>(params, tiles);
  return cudaGetLastError();
}

cudaError_t PromptAttention(const PromptAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& attention = params.attention;
  const uint32_t tiles = PromptTilesMax(params.rows_max, attention.sequences);
  if (tiles == 0 || attention.query_heads == 0) return cudaSuccess;
  const uint32_t head_dim = attention.kv.head_dim;
  if (tiles > kTilesMax || !(attention.scale > 0) || head_dim == 0 || head_dim > kPlainHeadDimMax ||
      head_dim % 8 != 0 || attention.query_stride % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  const bool bfloat16 = attention.type == DType::kBfloat16;
  if (attention.kv.type == DType::kFloat32) {
    return bfloat16 ? LaunchPlain<__nv_bfloat16, float>(params, tiles, stream)
                    : LaunchPlain<float, float>(params, tiles, stream);
  }
  if (!bfloat16) return LaunchPlain<float, __nv_bfloat16>(params, tiles, stream);
  if (attention.soft_cap > 0 || attention.alibi_slopes != nullptr || params.sinks != nullptr) {
    return DispatchHeadDim<true>(params, tiles, stream);
  }
  return DispatchHeadDim<false>(params, tiles, stream);
}

}  // namespace weft::kernels::cuda

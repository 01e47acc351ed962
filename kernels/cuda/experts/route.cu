#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kChunkRows = 64;
constexpr uint32_t kThreads = 512;

constexpr __host__ __device__ uint32_t DivideUp(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Pieces of the workspace.
struct RouteSpace {
  // [rows, per_token]: the experts of each row, in their order.
  uint32_t* chosen;
  // [chunks, experts]: how many rows of a chunk take an expert, then the first of their places.
  uint32_t* counts;

  __device__ __forceinline__ explicit RouteSpace(const RouteParams& params)
      : chosen(static_cast<uint32_t*>(params.workspace)),
        counts(chosen + size_t{params.rows} * params.per_token) {}
};

// A warp: the choices of one row.
template <int kPerLane>
__device__ __forceinline__ void ChooseRow(const RouteParams& params, const RouteSpace& space,
                                          uint32_t row) {
  const float* const numbers = params.numbers + size_t{row} * params.stride;
  const RouteChoice choice = ChooseExperts<kPerLane>(
      params, [numbers](uint32_t expert) { return __ldcg(numbers + expert); });
  if (threadIdx.x % kWarp >= params.per_token) return;
  const size_t at = size_t{row} * params.per_token + choice.order;
  space.chosen[at] = choice.expert;
  params.out.weights[at] = choice.weight;
}

// A block: the choices of a chunk's rows, and how many rows take each expert.
template <int kPerLane>
__device__ __forceinline__ void ChooseChunk(const RouteParams& params, const RouteSpace& space,
                                            uint32_t chunk, uint32_t* counts) {
  const uint32_t begin = chunk * kChunkRows;
  const uint32_t end = min(begin + kChunkRows, params.rows);
  for (uint32_t i = threadIdx.x; i < params.experts; i += kThreads) counts[i] = 0;
  for (uint32_t row = begin + threadIdx.x / kWarp; row < end; row += kThreads / kWarp) {
    ChooseRow<kPerLane>(params, space, row);
  }
  __syncthreads();
  for (uint32_t i = begin * params.per_token + threadIdx.x; i < end * params.per_token;
       i += kThreads) {
    atomicAdd(counts + __ldcg(space.chosen + i), 1u);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < params.experts; i += kThreads) {
    space.counts[size_t{chunk} * params.experts + i] = counts[i];
  }
}

// A block: where each expert's places begin, in all chunks, and the tiles.
__device__ __forceinline__ void Scan(const RouteParams& params, const RouteSpace& space,
                                     uint32_t chunks, uint32_t* totals) {
  for (uint32_t expert = threadIdx.x; expert < params.experts; expert += kThreads) {
    uint32_t total = 0;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      uint32_t* count = space.counts + size_t{chunk} * params.experts + expert;
      const uint32_t of_chunk = __ldcg(count);
      *count = total;
      total += of_chunk;
    }
    totals[expert] = total;
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    // Each lane has neighbouring experts.
    const uint32_t share = DivideUp(params.experts, kWarp);
    const uint32_t first = min(threadIdx.x * share, params.experts);
    const uint32_t last = min(first + share, params.experts);
    uint32_t places = 0;
    uint32_t tiles = 0;
    for (uint32_t expert = first; expert < last; ++expert) {
      places += totals[expert];
      tiles += DivideUp(totals[expert], params.tile_rows);
    }
    const uint32_t own_places = places;
    const uint32_t own_tiles = tiles;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const uint32_t more_places = __shfl_up_sync(kAllLanes, places, offset);
      const uint32_t more_tiles = __shfl_up_sync(kAllLanes, tiles, offset);
      if (threadIdx.x >= offset) {
        places += more_places;
        tiles += more_tiles;
      }
    }
    if (threadIdx.x == kWarp - 1) *params.out.tile_count = tiles;
    places -= own_places;
    tiles -= own_tiles;
    for (uint32_t expert = first; expert < last; ++expert) {
      const uint32_t end = places + totals[expert];
      totals[expert] = places;
      for (; places < end; places += min(params.tile_rows, end - places)) {
        params.out.tiles[tiles++] = {expert, places, min(params.tile_rows, end - places)};
      }
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < chunks * params.experts; i += kThreads) {
    space.counts[i] = __ldcg(space.counts + i) + totals[i % params.experts];
  }
}

// A block: the places of a chunk's rows. A thread has an expert and goes through the choices in
// their order, which is that of the rows.
__device__ __forceinline__ void PlaceChunk(const RouteParams& params, const RouteSpace& space,
                                           uint32_t chunk, uint16_t* chosen) {
  const uint32_t begin = chunk * kChunkRows * params.per_token;
  const uint32_t end = min(begin + kChunkRows * params.per_token, params.rows * params.per_token);
  for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
    chosen[i - begin] = static_cast<uint16_t>(__ldcg(space.chosen + i));
  }
  __syncthreads();
  for (uint32_t expert = threadIdx.x; expert < params.experts; expert += kThreads) {
    uint32_t place = __ldcg(space.counts + size_t{chunk} * params.experts + expert);
    for (uint32_t i = begin; i < end; ++i) {
      if (chosen[i - begin] != expert) continue;
      params.out.places[i] = place;
      params.out.row_of_place[place] = i / params.per_token;
      params.out.expert_of_place[place] = expert;
      ++place;
    }
  }
}

union RouteShared {
  uint32_t counts[kRouteExpertsMax];
  uint16_t chosen[kChunkRows * kRouteChoicesMax];
};

template <int kPerLane>
__global__ void __launch_bounds__(kThreads) RouteOneChunk(const RouteParams params) {
  __shared__ RouteShared shared;
  AllowNextKernel();
  WaitForEarlierKernels();
  const RouteSpace space(params);
  ChooseChunk<kPerLane>(params, space, 0, shared.counts);
  __syncthreads();
  Scan(params, space, 1, shared.counts);
  __syncthreads();
  PlaceChunk(params, space, 0, shared.chosen);
}

template <int kPerLane>
__global__ void __launch_bounds__(kThreads) ChooseChunks(const RouteParams params) {
  __shared__ RouteShared shared;
  AllowNextKernel();
  WaitForEarlierKernels();
  ChooseChunk<kPerLane>(params, RouteSpace(params), blockIdx.x, shared.counts);
}

__global__ void __launch_bounds__(kThreads) ScanChunks(const RouteParams params, uint32_t chunks) {
  __shared__ RouteShared shared;
  AllowNextKernel();
  WaitForEarlierKernels();
  Scan(params, RouteSpace(params), chunks, shared.counts);
}

__global__ void __launch_bounds__(kThreads) PlaceChunks(const RouteParams params) {
  __shared__ RouteShared shared;
  AllowNextKernel();
  WaitForEarlierKernels();
  PlaceChunk(params, RouteSpace(params), blockIdx.x, shared.chosen);
}

template <int kPerLane>
cudaError_t Launch(const RouteParams& params, cudaStream_t stream) {
  const uint32_t chunks = DivideUp(params.rows, kChunkRows);
  if (chunks == 1) {
    return LaunchKernel(RouteOneChunk<kPerLane>, dim3(1), kThreads, 0, params.dependent, stream,
                        params);
  }
  cudaError_t error = LaunchKernel(ChooseChunks<kPerLane>, dim3(chunks), kThreads, 0,
                                   params.dependent, stream, params);
  if (error != cudaSuccess) return error;
  error = LaunchKernel(ScanChunks, dim3(1), kThreads, 0, true, stream, params, chunks);
  if (error != cudaSuccess) return error;
  return LaunchKernel(PlaceChunks, dim3(chunks), kThreads, 0, true, stream, params);
}

}  // namespace

size_t RouteWorkspaceBytes(uint32_t rows_max, uint32_t experts, uint32_t per_token) {
  const size_t chunks = DivideUp(rows_max, kChunkRows);
  return (size_t{rows_max} * per_token + chunks * experts) * sizeof(uint32_t);
}

uint32_t ExpertTilesMax(uint32_t rows, uint32_t experts, uint32_t per_token, uint32_t tile_rows) {
  const uint32_t places = rows * per_token;
  return std::min(experts, places) + places / tile_rows;
}

bool IsValidChoice(const RouteParams& params) {
  return params.experts != 0 && params.experts <= kRouteExpertsMax && params.per_token != 0 &&
         params.per_token <= std::min(kRouteChoicesMax, params.experts) && params.groups != 0 &&
         params.groups <= kRouteGroupsMax && params.experts % params.groups == 0 &&
         params.groups_taken != 0 &&
         params.per_token <= params.groups_taken * (params.experts / params.groups);
}

cudaError_t RouteRows(const RouteParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  if (!IsValidChoice(params) || params.tile_rows < kExpertTileRowsMin ||
      params.stride < params.experts) {
    return cudaErrorInvalidValue;
  }
  if (params.experts <= 32) return Launch<1>(params, stream);
  if (params.experts <= 64) return Launch<2>(params, stream);
  if (params.experts <= 128) return Launch<4>(params, stream);
  if (params.experts <= 256) return Launch<8>(params, stream);
  return Launch<32>(params, stream);
}

}  // namespace weft::kernels::cuda

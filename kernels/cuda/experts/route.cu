#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kChunkRows = 64;
constexpr uint32_t kThreads = 512;
constexpr float kInfinity = __builtin_inff();

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

struct Best {
  float number;
  uint32_t expert;
};

// The larger number of two, of equal ones that of the lower expert.
__device__ __forceinline__ Best Better(const Best& a, const Best& b) {
  const bool first = a.number > b.number || (a.number == b.number && a.expert < b.expert);
  return first ? a : b;
}

__device__ __forceinline__ Best WarpBest(Best best) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    best = Better(best, {__shfl_xor_sync(kAllLanes, best.number, offset),
                         __shfl_xor_sync(kAllLanes, best.expert, offset)});
  }
  return best;
}

// As transformers computes them, against a sum of 0.
constexpr float kSigmoidSumMin = 1e-20f;

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// A warp: how good group `group` is. x as in ChooseRow.
template <int kPerLane>
__device__ __forceinline__ float WorthOf(const RouteParams& params, uint32_t group,
                                         const float (&x)[kPerLane]) {
  const uint32_t size = params.experts / params.groups;
  float first = -kInfinity;
  float second = -kInfinity;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t expert = i * kWarp + threadIdx.x % kWarp;
    if (expert >= params.experts || expert / size != group) continue;
    second = fmaxf(second, fminf(first, x[i]));
    first = fmaxf(first, x[i]);
  }
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, first, offset);
    const float next = __shfl_xor_sync(kAllLanes, second, offset);
    second = fmaxf(fmaxf(second, next), fminf(first, other));
    first = fmaxf(first, other);
  }
  return params.group_best == 1 ? first : first + second;
}

// A warp: hides the experts of groups that are not taken.
template <int kPerLane>
__device__ __forceinline__ void HideGroups(const RouteParams& params, float (&x)[kPerLane]) {
  const uint32_t lane = threadIdx.x % kWarp;
  // Lane g keeps what group g is worth.
  float worth = -kInfinity;
  for (uint32_t group = 0; group < params.groups; ++group) {
    const float of_group = WorthOf<kPerLane>(params, group, x);
    if (lane == group) worth = of_group;
  }
  uint32_t better = 0;
  for (uint32_t group = 0; group < params.groups; ++group) {
    const float other = __shfl_sync(kAllLanes, worth, group);
    better += other > worth || (other == worth && group < lane) ? 1 : 0;
  }
  const unsigned taken = __ballot_sync(kAllLanes, better < params.groups_taken);
  const uint32_t size = params.experts / params.groups;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t expert = i * kWarp + lane;
    if (expert < params.experts && (taken >> (expert / size) & 1) == 0) x[i] = -kInfinity;
  }
}

// A warp: the choices of one row. Lane l has the experts l, l + 32, ...
template <int kPerLane>
__device__ __forceinline__ void ChooseRow(const RouteParams& params, const RouteSpace& space,
                                          uint32_t row) {
  const uint32_t lane = threadIdx.x % kWarp;
  const float* numbers = params.numbers + size_t{row} * params.stride;
  float x[kPerLane];
  bool finite = true;
  float largest = -kInfinity;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t expert = i * kWarp + lane;
    x[i] = -kInfinity;
    if (expert >= params.experts) continue;
    x[i] = __ldcg(numbers + expert);
    finite = finite && isfinite(x[i]);
    largest = fmaxf(largest, x[i]);
  }
  finite = __all_sync(kAllLanes, finite);
  largest = WarpMax(largest);
  float all = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) all += __expf(x[i] - largest);
  all = params.sigmoid ? 1.0f : WarpSum(all);
  if (params.sigmoid) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const uint32_t expert = i * kWarp + lane;
      if (expert >= params.experts) continue;
      x[i] = Sigmoid(x[i]);
      if (params.choice_bias != nullptr) x[i] += params.choice_bias[expert];
    }
  }
  if (params.groups > 1) HideGroups<kPerLane>(params, x);
  // Of an expert that was chosen by `number`.
  const auto score_of = [&](const Best& best) {
    return params.sigmoid ? Sigmoid(__ldcg(numbers + best.expert)) : __expf(best.number - largest);
  };
  // Lane i keeps choice i.
  Best mine = {0.0f, lane};
  float chosen = 0.0f;
  for (uint32_t choice = 0; choice < params.per_token && finite; ++choice) {
    Best best = {-kInfinity, UINT32_MAX};
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = Better(best, {x[i], i * kWarp + lane});
    best = WarpBest(best);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (best.expert == i * kWarp + lane) x[i] = -kInfinity;
    }
    chosen += score_of(best);
    if (lane == choice) mine = best;
  }
  if (params.sigmoid) chosen += kSigmoidSumMin;
  const float sum = params.renormalised ? chosen : all;
  const bool has_weight = finite && lane < params.per_token;
  const float weight = has_weight ? score_of(mine) / sum * params.scale : __builtin_nanf("");
  uint32_t order = 0;
  for (uint32_t choice = 0; choice < params.per_token; ++choice) {
    order += __shfl_sync(kAllLanes, mine.expert, choice) < mine.expert ? 1 : 0;
  }
  if (lane >= params.per_token) return;
  const size_t at = size_t{row} * params.per_token + order;
  space.chosen[at] = mine.expert;
  params.out.weights[at] = weight;
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

cudaError_t RouteRows(const RouteParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  if (params.experts == 0 || params.experts > kRouteExpertsMax || params.per_token == 0 ||
      params.per_token > std::min(kRouteChoicesMax, params.experts) ||
      params.tile_rows < kExpertTileRowsMin || params.stride < params.experts ||
      params.groups == 0 || params.groups > kRouteGroupsMax ||
      params.experts % params.groups != 0 || params.groups_taken == 0 ||
      params.per_token > params.groups_taken * (params.experts / params.groups)) {
    return cudaErrorInvalidValue;
  }
  if (params.experts <= 32) return Launch<1>(params, stream);
  if (params.experts <= 64) return Launch<2>(params, stream);
  if (params.experts <= 128) return Launch<4>(params, stream);
  if (params.experts <= 256) return Launch<8>(params, stream);
  return Launch<32>(params, stream);
}

}  // namespace weft::kernels::cuda

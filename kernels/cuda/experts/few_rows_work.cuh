// How FewRowsExperts divides its work: what lies in shared memory, what the routes say, and the
// tiles that a block goes through. Device code, and the plan for the host.

#pragma once

#include <algorithm>

#include "kernels/cuda/experts/few_rows.h"
#include "kernels/cuda/gemm/gemv_work.cuh"

namespace weft::kernels::cuda {

// Elements of k that a copy of a row of the weight brings.
inline constexpr uint32_t kFewRowsElements = 1024;
using FewRowsChunk = GemvChunk<kFewRowsElements>;
// Choices of all rows.
inline constexpr uint32_t kFewRowsPlacesMax = 64;
// Of each of the two rings.
inline constexpr uint32_t kFewRowsSlotsMax = GemvShape::kSlotsMax / 2;
inline constexpr uint32_t kNoPlace = 0xffffffffu;

// A product's ring, and its input behind that, with room behind the last row, which partial chunks
// read and throw away.
struct FewRowsRing {
  uint32_t slots;
  // From row to row of the input, in vectors of eight elements.
  uint32_t x_stride;
  // Of shared memory.
  uint32_t x_begin;
  uint32_t end;

  // Of `rows` rows of `k` elements; false: they leave no room for a ring.
  bool Make(uint32_t rows, uint32_t k) {
    // The tables lie beside it.
    constexpr uint32_t kSharedMax = 224 * 1024;
    const uint64_t x_row = (uint64_t{k} * 2 + 127) / 128 * 128 + GemvShape::kPadBytes;
    const uint64_t x_bytes = rows * x_row + FewRowsChunk::kBytes;
    const uint64_t least = GemvShape::kRing + GemvShape::kSlotsMin * FewRowsChunk::kSlotBytes;
    if (least + x_bytes > kSharedMax) return false;
    const uint32_t room = kSharedMax - GemvShape::kRing - static_cast<uint32_t>(x_bytes);
    slots = std::min(room / uint32_t{FewRowsChunk::kSlotBytes}, kFewRowsSlotsMax);
    x_stride = static_cast<uint32_t>(x_row / 16);
    x_begin = GemvShape::kRing + slots * FewRowsChunk::kSlotBytes;
    end = x_begin + static_cast<uint32_t>(x_bytes);
    return true;
  }
};

// Shared memory lies as Gemv's. The two products have it one after the other, each with barriers of
// its own.
struct FewRowsPlan {
  FewRowsRing up;
  FewRowsRing down;
  GemvNextPlan next;

  bool Make(uint32_t rows, uint32_t places, uint32_t hidden, uint32_t mlp) {
    return up.Make(rows, hidden) && down.Make(places, mlp);
  }
};

// What the routes say.
struct FewRowsTables {
  uint32_t experts[kFewRowsPlacesMax];
  // The place at which a row takes the expert of a tile, or kNoPlace.
  uint32_t places[kFewRowsPlacesMax][kGemvRowsMax];
  float weights[kFewRowsPlacesMax];
};

// By the warps that multiply; a barrier has to follow.
__device__ __forceinline__ void FillTables(const FewRowsExpertsParams& params, uint32_t tiles,
                                           FewRowsTables* tables) {
  const uint32_t i = threadIdx.x;
  if (i < tiles) {
    const auto* tile = reinterpret_cast<const uint32_t*>(params.routes.tiles + i);
    tables->experts[i] = __ldcg(tile);
    const uint32_t begin = __ldcg(tile + 1);
    const uint32_t count = __ldcg(tile + 2);
#pragma unroll
    for (uint32_t row = 0; row < kGemvRowsMax; ++row) tables->places[i][row] = kNoPlace;
    for (uint32_t place = begin; place < begin + count; ++place) {
      tables->places[i][__ldcg(params.routes.row_of_place + place)] = place;
    }
  }
  if (i < params.rows * params.per_token) {
    tables->weights[__ldcg(params.routes.places + i)] = __ldcg(params.routes.weights + i);
  }
}

// A tile of the work: sixteen rows of an expert's matrix, or fewer.
struct FewRowsTile {
  // Which of the experts taken.
  uint32_t index;
  // The columns of the output.
  uint32_t column;
  uint32_t count;
};

// Of the first product: a block has neighbours among the columns of all experts taken, one expert
// behind the other, and takes eight gates with their ups at a time.
struct UpWalk {
  uint32_t columns;
  GemvRange left;

  __device__ __forceinline__ UpWalk(const FewRowsExpertsParams& params, uint32_t tiles)
      : columns(params.mlp), left(tiles * params.mlp, blockIdx.x, gridDim.x) {}
  static __device__ __forceinline__ uint32_t K(const FewRowsExpertsParams& params) {
    return params.hidden;
  }
  static __device__ __forceinline__ const char* Matrix(const FewRowsExpertsParams& params,
                                                       uint32_t expert) {
    const size_t rows = size_t{expert} * 2 * params.mlp;
    return static_cast<const char*>(params.gate_up) + rows * params.hidden * 2;
  }
  __device__ __forceinline__ bool Next(FewRowsTile* tile) {
    if (left.begin >= left.end) return false;
    tile->index = left.begin / columns;
    tile->column = left.begin % columns;
    tile->count = min(min(left.end - left.begin, columns - tile->column), GemvShape::kTileRows / 2);
    left.begin += tile->count;
    return true;
  }
  __device__ __forceinline__ uint32_t Rows(const FewRowsTile& tile) const { return 2 * tile.count; }
  // Row 0 to 15 of the tile: whether it is there, and where in the expert's matrix.
  __device__ __forceinline__ bool Has(const FewRowsTile& tile, uint32_t row) const {
    return row < GemvShape::kTileRows && row % (GemvShape::kTileRows / 2) < tile.count;
  }
  __device__ __forceinline__ uint32_t Row(const FewRowsTile& tile, uint32_t row) const {
    constexpr uint32_t kHalf = GemvShape::kTileRows / 2;
    return tile.column + row % kHalf + (row < kHalf ? 0 : columns);
  }
};

// Of the second: a block has neighbouring columns of the output, and for sixteen of them goes
// through all experts taken.
struct DownWalk {
  uint32_t tiles;
  GemvRange left;
  uint32_t next = 0;

  __device__ __forceinline__ DownWalk(const FewRowsExpertsParams& params, uint32_t tiles_)
      : tiles(tiles_), left(params.hidden, blockIdx.x, gridDim.x) {}
  static __device__ __forceinline__ uint32_t K(const FewRowsExpertsParams& params) {
    return params.mlp;
  }
  static __device__ __forceinline__ const char* Matrix(const FewRowsExpertsParams& params,
                                                       uint32_t expert) {
    const size_t rows = size_t{expert} * params.hidden;
    return static_cast<const char*>(params.down) + rows * params.mlp * 2;
  }
  __device__ __forceinline__ bool Next(FewRowsTile* tile) {
    if (next == tiles) {
      next = 0;
      left.begin += GemvShape::kTileRows;
    }
    if (left.begin >= left.end || tiles == 0) return false;
    *tile = {next++, left.begin, min(left.end - left.begin, GemvShape::kTileRows)};
    return true;
  }
  __device__ __forceinline__ uint32_t Rows(const FewRowsTile& tile) const { return tile.count; }
  __device__ __forceinline__ bool Has(const FewRowsTile& tile, uint32_t row) const {
    return row < tile.count;
  }
  __device__ __forceinline__ uint32_t Row(const FewRowsTile& tile, uint32_t row) const {
    return tile.column + row;
  }
};

}  // namespace weft::kernels::cuda

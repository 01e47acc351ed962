// How Gemv divides its work, and the plan that the host makes.
//
// A block owns neighbouring columns (elements of a row of `out`) and goes through them two tiles at
// a time. Of a long product the last columns belong to nobody: who is done with its own claims a
// tile of them after the other, since multiprocessors do not all read at one speed. A tile is
// sixteen rows of the weight: sixteen columns, or eight pairs of rows that make a column together,
// gates with their ups or elements of a head that are rotated by each other. Its weights come
// in chunks: sixteen rows of kChunk elements of k, a slot of the ring. Eight warps share a chunk,
// each a slice of its k over all sixteen rows, and keep sums of their own over all chunks, which
// are added up, in the order of the warps, when the two tiles are done. So the order of a sum
// depends on k alone.
//
// The input lies in shared memory; where it is too long, a panel of whole chunks at a time, and the
// order becomes panel by panel, in each the chunks of the first tile and those of the second.

#pragma once

#include <algorithm>

#include "kernels/cuda/gemm/gemv_tuning.h"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/reduce.cuh"

namespace weft::kernels::cuda {

struct GemvShape {
  // Warps that multiply; one more requests the weights.
  static constexpr uint32_t kWarps = 8;
  static constexpr uint32_t kThreads = kWarps * kWarp;
  static constexpr uint32_t kAllThreads = kThreads + kWarp;
  // Elements that a 16-byte access holds.
  static constexpr uint32_t kVector = 8;
  static constexpr uint32_t kTileRows = 16;
  static constexpr uint32_t kTiles = 2;
  // Elements of k that a warp takes at a time: four lanes to a row, 16 bytes each.
  static constexpr uint32_t kStep = 32;
  // Behind each row in shared memory, of weights and of input: eight lanes that read two rows then
  // touch all banks once.
  static constexpr uint32_t kPadBytes = 64;
  static constexpr uint32_t kSlotsMin = 3;
  static constexpr uint32_t kSlotsMax = 16;

  // Shared memory, from its beginning: barriers, zeros, the norm's sums of the warps (of four rows,
  // of their elements and of their squares), its factors and means, the warps' sums of two tiles;
  // then the ring; then the input.
  static constexpr uint32_t kFull = 0;
  static constexpr uint32_t kEmpty = kFull + kSlotsMax * 8;
  // Of the slot that holds the first chunk of a pair of tiles: its columns.
  static constexpr uint32_t kColumns = kEmpty + kSlotsMax * 8;
  static constexpr uint32_t kZeros = kColumns + kSlotsMax * 8;
  static constexpr uint32_t kNormSums = kZeros + 128;
  static constexpr uint32_t kScales = kNormSums + 2 * 4 * kWarps * 4;
  static constexpr uint32_t kMeans = kScales + kGemvRowsMax * 4;
  static constexpr uint32_t kSums = kScales + 128;
  static constexpr uint32_t kTileSums = kTileRows * kGemvRowsMax;
  static constexpr uint32_t kRing = kSums + kTiles * kWarps * kTileSums * 4;
  static_assert(kSums % 128 == 0 && kRing % 128 == 0 && kMeans + kGemvRowsMax * 4 <= kSums);
  static_assert(kGemvRowsMax == 8, "the columns of a matrix instruction");
};

template <uint32_t kElements>
struct GemvChunk {
  static constexpr uint32_t kBytes = kElements * 2;
  static constexpr uint32_t kRowBytes = kBytes + GemvShape::kPadBytes;
  static constexpr uint32_t kSlotBytes = GemvShape::kTileRows * kRowBytes;
  // Of a warp.
  static constexpr uint32_t kSliceElements = kElements / GemvShape::kWarps;
  static constexpr uint32_t kSliceSteps = kSliceElements / GemvShape::kStep;
  static_assert(kSliceSteps % 2 == 0 && kSlotBytes % 128 == 0);
};

// Which rows of the weight make a column.
struct GemvPairs {
  // 0: one. Otherwise the rows come in runs of twice so many, of whose first half each has its
  // partner so far behind it.
  uint32_t distance = 0;

  static __host__ __device__ constexpr uint32_t Distance(GemvEpilogue epilogue, uint32_t n,
                                                         uint32_t head_dim) {
    return epilogue == GemvEpilogue::kGated          ? n / 2
           : epilogue == GemvEpilogue::kRotateAppend ? head_dim / 2
                                                     : 0;
  }
  GemvPairs() = default;
  __host__ __device__ constexpr GemvPairs(GemvEpilogue epilogue, uint32_t n, uint32_t head_dim)
      : distance(Distance(epilogue, n, head_dim)) {}

  // Whether `n` rows are whole heads of pairs.
  static constexpr bool Fit(uint32_t n, uint32_t head_dim) {
    return head_dim != 0 && head_dim % 2 == 0 && n % head_dim == 0;
  }

  __host__ __device__ constexpr uint32_t Columns(uint32_t n) const {
    return distance != 0 ? n / 2 : n;
  }
  // Columns of a tile.
  __host__ __device__ constexpr uint32_t Width() const {
    return distance != 0 ? GemvShape::kTileRows / 2 : GemvShape::kTileRows;
  }
  // The first of the column's rows.
  __host__ __device__ constexpr uint32_t FirstRow(uint32_t column) const {
    return distance != 0 ? column + column / distance * distance : column;
  }
};

// With a workspace: of `columns`, those that `grid` blocks own; `n` rows of the weight.
inline uint32_t GemvOwned(uint32_t columns, uint32_t n, uint32_t grid, const GemvTuning& tuning) {
  if (grid == 0 || n / grid < tuning.claiming_rows) return columns;
  return columns - static_cast<uint32_t>(uint64_t{columns} * tuning.claimed_percent / 100);
}

inline bool IsValidNext(const GemvNext& next) {
  if (next.weight != nullptr && (next.k == 0 || next.k % GemvShape::kVector != 0)) return false;
  return next.epilogue != GemvEpilogue::kRotateAppend || GemvPairs::Fit(next.n, next.head_dim);
}

// What of a later Gemv blocks bring into the L2: the chunks of each, the grid that it will have and
// the columns that its blocks will own.
struct GemvNextPlan {
  uint32_t chunks;
  GemvPairs pairs;
  uint32_t grid;
  uint32_t owned;

  // `claims`: it will have a workspace.
  static GemvNextPlan Of(const GemvNext& next, bool claims, const GemvTuning& tuning,
                         uint32_t multiprocessors) {
    const GemvPairs pairs(next.epilogue, next.n, next.head_dim);
    const uint32_t columns = pairs.Columns(next.n);
    const uint32_t grid = std::min(columns, multiprocessors);
    return {next.weight == nullptr ? 0 : tuning.chunks_ahead, pairs, grid,
            claims ? GemvOwned(columns, next.n, grid, tuning) : columns};
  }
};

struct GemvPlan {
  GemvPairs pairs;
  // Elements of a row of `out`.
  uint32_t columns;
  // Those that blocks own; the tiles that they claim.
  uint32_t owned;
  uint32_t claimed_tiles;
  // Of k, and of a panel; the last panel may have fewer.
  uint32_t chunks;
  uint32_t panel_chunks;
  uint32_t panels;
  uint32_t slots;
  // From row to row of the input, in vectors of eight elements.
  uint32_t x_stride;
  uint32_t shared_bytes;
  uint32_t grid;
  GemvNextPlan next;

  static constexpr uint32_t DivideUp(uint32_t a, uint32_t b) { return a / b + (a % b != 0); }
  // False: not even one chunk of the input fits.
  template <uint32_t kElements>
  bool Make(const GemvParams& params, const GemvTuning& tuning, uint32_t multiprocessors) {
    using Chunk = GemvChunk<kElements>;
    Divide(params, tuning, multiprocessors);
    chunks = DivideUp(params.k, kElements);
    const uint32_t least = GemvShape::kRing + GemvShape::kSlotsMin * Chunk::kSlotBytes +
                           params.rows * GemvShape::kPadBytes;
    if (least > tuning.shared_bytes) return false;
    const uint32_t fit = (tuning.shared_bytes - least) / (params.rows * Chunk::kBytes);
    if (fit == 0) return false;
    panels = DivideUp(chunks, fit);
    panel_chunks = DivideUp(chunks, panels);
    panels = DivideUp(chunks, panel_chunks);
    const uint32_t x_bytes = panel_chunks * Chunk::kBytes + GemvShape::kPadBytes;
    x_stride = x_bytes / 16;
    const uint32_t room = tuning.shared_bytes - GemvShape::kRing - params.rows * x_bytes;
    slots = std::min(room / Chunk::kSlotBytes, GemvShape::kSlotsMax);
    shared_bytes = GemvShape::kRing + slots * Chunk::kSlotBytes + params.rows * x_bytes;
    return true;
  }

 private:
  void Divide(const GemvParams& params, const GemvTuning& tuning, uint32_t multiprocessors) {
    pairs = GemvPairs(params.epilogue, params.n, params.heads.kv.head_dim);
    columns = pairs.Columns(params.n);
    grid = std::min(columns, multiprocessors);
    const bool claims = params.workspace != nullptr;
    owned = claims ? GemvOwned(columns, params.n, grid, tuning) : columns;
    next = GemvNextPlan::Of(params.next, claims, tuning, multiprocessors);
    claimed_tiles = DivideUp(columns - owned, pairs.Width());
  }
};

// Columns, of a block or of a pair of tiles.
struct GemvRange {
  uint32_t begin;
  uint32_t end;

  // None.
  __host__ __device__ __forceinline__ GemvRange() : begin(0), end(0) {}
  // Of a block.
  __host__ __device__ __forceinline__ GemvRange(uint32_t columns, uint32_t block, uint32_t blocks)
      : begin(static_cast<uint32_t>(uint64_t{columns} * block / blocks)),
        end(static_cast<uint32_t>(uint64_t{columns} * (block + 1) / blocks)) {}
};

// The weight's rows of a tile.
struct GemvTile {
  GemvPairs pairs;
  uint32_t column;
  // Columns that there are.
  uint32_t count;

  __host__ __device__ __forceinline__ GemvTile(GemvPairs pairs_, uint32_t column_, uint32_t end)
      : pairs(pairs_),
        column(column_),
        count(end - column_ < pairs_.Width() ? end - column_ : pairs_.Width()) {}

  __host__ __device__ __forceinline__ uint32_t Rows() const {
    return pairs.distance != 0 ? 2 * count : count;
  }
  // Whether the tile's row (0 to 15) is there, and where in the weight.
  __host__ __device__ __forceinline__ bool Has(uint32_t row) const {
    return row < GemvShape::kTileRows && row % pairs.Width() < count;
  }
  __host__ __device__ __forceinline__ uint32_t WeightRow(uint32_t row) const {
    const uint32_t width = pairs.Width();
    return pairs.FirstRow(column + row % width) + (row < width ? 0 : pairs.distance);
  }
};

// Of the warps that multiply.
__device__ __forceinline__ void GemvBarrier() { NamedBarrier(1, GemvShape::kThreads); }

}  // namespace weft::kernels::cuda

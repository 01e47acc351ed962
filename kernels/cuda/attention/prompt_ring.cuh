// Prompt attention by warpgroup products: what lies where in shared memory, the stages that keys
// and values pass through, and the warp that fills them by the copy engine. Device code only.

#pragma once

#include "kernels/cuda/attention/kv_tensor_map.h"
#include "kernels/cuda/attention/prompt_work.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/tensor_copy.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"

namespace weft::kernels::cuda {

// A value that all lanes of the warp have, told to be so: addresses and descriptors that are made
// of it are worked out once a warp, and not again from the beginning in every tile.
__device__ __forceinline__ uint32_t OfWarp(uint32_t value) {
  return __shfl_sync(kAllLanes, value, 0);
}

// Query, keys and values lie in slabs of 64 dimensions (wgmma.cuh): the query's of 128 rows, those
// of keys and values of kKeys rows.
template <int kHeadDim>
struct WgmmaShape {
  // Warpgroups that multiply; one more brings keys and values.
  static constexpr uint32_t kConsumers = 2;
  static constexpr uint32_t kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr uint32_t kGroupRows = kPromptTileRows / kConsumers;
  static_assert(kGroupRows == 64);
  // Keys of a tile; tiles begin at multiples of it, so that a row meets the same tiles however its
  // prompt is cut. Wide heads: what two stages of shared memory hold.
  static constexpr uint32_t kKeys = kHeadDim > 128 ? 64 : 128;
  static constexpr uint32_t kBlocks = kKeys / kKvBlockTokens;
  static constexpr uint32_t kSlabs = kHeadDim / kSlabDims;
  static constexpr uint32_t kQuerySlab = kPromptTileRows * kSlabRowBytes;
  static constexpr uint32_t kKvSlab = kKeys * kSlabRowBytes;
  static constexpr uint32_t kQueryBytes = kSlabs * kQuerySlab;
  static constexpr uint32_t kTileBytes = kSlabs * kKvSlab;
  static constexpr uint32_t kBlockBytes = kTileBytes / kBlocks;
  static constexpr uint32_t kStages = 2;
  // Query tiles: the next item's comes while the current one is worked on, where there is room.
  static constexpr uint32_t kQueries = kHeadDim > 128 ? 1 : 2;
  // What the swizzle's pattern needs; dynamic shared memory is not promised to have it.
  static constexpr uint32_t kAlignment = 1024;
  static constexpr uint32_t kSharedBytes =
      kQueries * kQueryBytes + 2 * kStages * kTileBytes + kAlignment;
  static_assert(kHeadDim % kSlabDims == 0 && kSlabDims == kKvBoxDims);
};

// Stages of the keys, or of the values, of a block. Its tile number `tile` (from 0, on through all
// of the block's items) is in stage tile % kStages and belongs to phase tile / kStages of the
// stage's two barriers: `full` when the tile has landed, `empty` when all warps that multiply have
// done with it. Whoever waits for a tile must have waited for, or know to have landed, the one that
// was in the stage before: a wait tells a phase from its neighbours only.
template <int kHeadDim>
struct KvRing {
  using Shape = WgmmaShape<kHeadDim>;
  uint32_t tiles;  // Shared addresses.
  uint32_t full;
  uint32_t empty;

  __device__ __forceinline__ uint32_t Tile(uint32_t tile) const {
    return tiles + tile % Shape::kStages * Shape::kTileBytes;
  }
  __device__ __forceinline__ uint32_t Full(uint32_t tile) const {
    return full + tile % Shape::kStages * static_cast<uint32_t>(sizeof(uint64_t));
  }
  __device__ __forceinline__ void WaitFull(uint32_t tile) const {
    WaitForPhase(Full(tile), tile / Shape::kStages % 2);
  }
  // For the phase before: that of the tile which was in the stage. The first tiles pass at once.
  __device__ __forceinline__ void WaitEmpty(uint32_t tile) const {
    WaitForPhase(Empty(tile), tile / Shape::kStages % 2 ^ 1);
  }
  // By all lanes of a warp that has read the tile.
  __device__ __forceinline__ void Release(uint32_t tile) const {
    if (threadIdx.x % kWarp == 0) Arrive(Empty(tile));
  }

 private:
  __device__ __forceinline__ uint32_t Empty(uint32_t tile) const {
    return empty + tile % Shape::kStages * static_cast<uint32_t>(sizeof(uint64_t));
  }
};

// The warp that brings an item's keys and values: its first lane copies, all of them clear.
template <int kHeadDim>
struct KvProducer {
  using Shape = WgmmaShape<kHeadDim>;
  using Blocks = uint32_t[Shape::kBlocks];
  uint32_t kv_heads;
  KvRing<kHeadDim> keys;
  KvRing<kHeadDim> values;
  uint32_t landed;  // A barrier of its own, and the parity of the phase it is in.
  uint32_t landed_parity;
  PromptWork work;  // The item's.

  // Of the tile at first_key, the positions that some row of the item sees. Blocks of the cache
  // without any are not read; other positions of their blocks may hold anything.
  __device__ __forceinline__ uint32_t ValidBegin(uint32_t first_key) const {
    return work.key_begin > first_key ? work.key_begin - first_key : 0;
  }
  __device__ __forceinline__ uint32_t ValidEnd(uint32_t first_key) const {
    return min(work.key_end - first_key, uint32_t{Shape::kKeys});
  }

  // The blocks of the tile; in place of those that are not read, ones that are, so that no entry of
  // the table is touched that may not be there.
  __device__ __forceinline__ void FindBlocks(Blocks& blocks, uint32_t first_key) const {
    const uint32_t first = work.key_begin / kKvBlockTokens;
    const uint32_t last = (work.key_end - 1) / kKvBlockTokens;
#pragma unroll
    for (uint32_t b = 0; b < Shape::kBlocks; ++b) {
      blocks[b] = work.blocks[min(max(first_key / kKvBlockTokens + b, first), last)];
    }
  }

  __device__ __forceinline__ void Copy(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                       const Blocks& blocks, uint32_t first_key) const {
    if (threadIdx.x % kWarp != 0) return;
    const uint32_t begin = ValidBegin(first_key) / kKvBlockTokens;
    const uint32_t end = (ValidEnd(first_key) + kKvBlockTokens - 1) / kKvBlockTokens;
    ArriveExpecting(barrier, (end - begin) * Shape::kBlockBytes);
#pragma unroll
    for (uint32_t b = 0; b < Shape::kBlocks; ++b) {
      if (b < begin || b >= end) continue;
#pragma unroll
      for (uint32_t slab = 0; slab < Shape::kSlabs; ++slab) {
        CopyBox(to + slab * Shape::kKvSlab + b * kKvBlockTokens * kSlabRowBytes, map,
                slab * kSlabDims, 0, blocks[b] * kv_heads + work.kv_head, barrier);
      }
    }
  }

  // Rows begin .. end - 1 of a tile.
  __device__ __forceinline__ void Clear(uint32_t to, uint32_t begin, uint32_t end) const {
#pragma unroll 1
    for (uint32_t slab = 0; slab < Shape::kSlabs; ++slab) {
      const uint32_t rows = to + slab * Shape::kKvSlab;
#pragma unroll 1
      for (uint32_t at = begin * kSlabRowBytes + threadIdx.x % kWarp * 16; at < end * kSlabRowBytes;
           at += kWarp * 16) {
        StoreShared(rows + at, uint4{0, 0, 0, 0});
      }
    }
  }

  __device__ __forceinline__ void CopyValues(uint32_t tile, const CUtensorMap* map,
                                             const Blocks& blocks, uint32_t first_key) {
    values.WaitEmpty(tile);
    const uint32_t to = values.Tile(tile);
    const uint32_t begin = ValidBegin(first_key);
    const uint32_t end = ValidEnd(first_key);
    if (begin == 0 && end == Shape::kKeys) {
      Copy(to, map, values.Full(tile), blocks, first_key);
      return;
    }
    // The first tile or the last. Positions that nobody sees have weight zero, and zero times NaN
    // is NaN: clear them after the landing and before the tile is handed over.
    Copy(to, map, landed, blocks, first_key);
    WaitForPhase(landed, landed_parity);
    landed_parity ^= 1;
    Clear(to, 0, begin);
    Clear(to, end, Shape::kKeys);
    FenceSharedForAsync();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) Arrive(values.Full(tile));
  }

  // The item's tiles are begin .. end - 1 of the rings. Keys go one tile ahead of values: in the
  // order in which stages become empty. Arrives at near_end once, with the last tiles to come.
  __device__ __forceinline__ void Run(const KvTensorMaps& maps, uint32_t begin, uint32_t end,
                                      uint32_t near_end) {
    // Earlier than the finding of an item takes, and no more: who claims an item early may have it
    // wait while others have nothing to do.
    const uint32_t near_end_tile = max(end, begin + 2) - 2;
    uint32_t first_key = work.key_begin / Shape::kKeys * Shape::kKeys;
    Blocks before = {};
    Blocks now, next;
    FindBlocks(now, first_key);
#pragma unroll 1
    for (uint32_t tile = begin; tile < end; ++tile) {
      // On the way while this warp waits for stages.
      FindBlocks(next, first_key + Shape::kKeys);
      keys.WaitEmpty(tile);
      Copy(keys.Tile(tile), &maps.keys, keys.Full(tile), now, first_key);
      if (tile == near_end_tile && threadIdx.x % kWarp == 0) Arrive(near_end);
      if (tile > begin) CopyValues(tile - 1, &maps.values, before, first_key - Shape::kKeys);
#pragma unroll
      for (uint32_t b = 0; b < Shape::kBlocks; ++b) {
        before[b] = now[b];
        now[b] = next[b];
      }
      first_key += Shape::kKeys;
    }
    CopyValues(end - 1, &maps.values, before, first_key - Shape::kKeys);
  }
};

}  // namespace weft::kernels::cuda

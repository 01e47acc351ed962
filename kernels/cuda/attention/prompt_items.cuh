// Prompt attention by warpgroup products: the items that a block works on one after the other, and
// the warps that find them and load their query rows. An item is an entry of the work list for one
// query head; heads are fastest, so that those of a group run beside each other and find each
// other's keys and values in the L2. Device code only.
//
// Item number `item` (from 0) of a block passes through slot item % kItemSlots; phase
// item / kItemSlots of the slot's barriers ends: of `found`, when the slot holds it; of `loaded`,
// when its query is in shared memory; of `done`, when all that read the slot or the query have done
// with both. Everybody waits for every item, so nobody is a phase behind unnoticed.

#pragma once

#include "kernels/cuda/attention/prompt_ring.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"

namespace weft::kernels::cuda {

struct PromptItem {
  PromptWork work;  // rows = 0: there is no more.
  uint32_t query_head;
  uint32_t key_tiles;
};

inline constexpr uint32_t kItemSlots = 2;
// The warps that load queries: the last of the first warpgroup.
inline constexpr uint32_t kLoaderWarps = 2;
inline constexpr uint32_t kLoaderThreads = kLoaderWarps * kWarp;
// Warps that read items: those that multiply or load queries, and the one that brings keys.
template <int kHeadDim>
inline constexpr uint32_t kItemReaders =
    WgmmaShape<kHeadDim>::kConsumers*(kWarpgroup / kWarp) + kLoaderWarps + 1;

// In shared memory, beside the dynamic part.
template <int kHeadDim>
struct WgmmaShared {
  PromptItem items[kItemSlots];
  uint64_t found[kItemSlots];
  uint64_t loaded[kItemSlots];
  uint64_t done[kItemSlots];
  // Phase `item`: that item's last tiles are on their way, the next one is to be found.
  uint64_t near_end;
  uint64_t full[2][WgmmaShape<kHeadDim>::kStages];  // Of keys, of values.
  uint64_t empty[2][WgmmaShape<kHeadDim>::kStages];
  uint64_t landed;
};

// By one thread.
template <int kHeadDim>
__device__ __forceinline__ void PrepareBarriers(WgmmaShared<kHeadDim>& shared) {
  using Shape = WgmmaShape<kHeadDim>;
#pragma unroll
  for (uint32_t slot = 0; slot < kItemSlots; ++slot) {
    InitBarrier(SharedAddress(&shared.found[slot]), 1);
    InitBarrier(SharedAddress(&shared.loaded[slot]), kLoaderWarps);
    InitBarrier(SharedAddress(&shared.done[slot]), kItemReaders<kHeadDim>);
  }
  InitBarrier(SharedAddress(&shared.near_end), 1);
#pragma unroll
  for (int of = 0; of < 2; ++of) {
#pragma unroll
    for (uint32_t stage = 0; stage < Shape::kStages; ++stage) {
      InitBarrier(SharedAddress(&shared.full[of][stage]), 1);
      InitBarrier(SharedAddress(&shared.empty[of][stage]),
                  Shape::kConsumers * (kWarpgroup / kWarp));
    }
  }
  InitBarrier(SharedAddress(&shared.landed), 1);
  FenceBarriers();
}

template <int kHeadDim>
struct ItemRing {
  using Shape = WgmmaShape<kHeadDim>;
  PromptItem* items;
  uint32_t queries;  // Shared addresses: of the query tiles, of barriers.
  uint32_t found;
  uint32_t loaded;
  uint32_t done;

  __device__ __forceinline__ PromptItem& Item(uint32_t item) const {
    return items[item % kItemSlots];
  }
  __device__ __forceinline__ uint32_t Query(uint32_t item) const {
    return queries + item % Shape::kQueries * Shape::kQueryBytes;
  }

  // Whether there is one.
  __device__ __forceinline__ bool WaitFound(uint32_t item) const {
    Wait(found, item);
    return Item(item).work.rows != 0;
  }
  __device__ __forceinline__ void WaitLoaded(uint32_t item) const { Wait(loaded, item); }
  __device__ __forceinline__ void WaitDone(uint32_t item) const { Wait(done, item); }
  // By all lanes of a warp.
  __device__ __forceinline__ void Found(uint32_t item) const { ArriveOnce(found, item); }
  __device__ __forceinline__ void Loaded(uint32_t item) const { ArriveOnce(loaded, item); }
  __device__ __forceinline__ void Done(uint32_t item) const { ArriveOnce(done, item); }

 private:
  __device__ __forceinline__ uint32_t Barrier(uint32_t barriers, uint32_t item) const {
    return barriers + item % kItemSlots * static_cast<uint32_t>(sizeof(uint64_t));
  }
  __device__ __forceinline__ void Wait(uint32_t barriers, uint32_t item) const {
    WaitForPhase(Barrier(barriers, item), item / kItemSlots % 2);
  }
  __device__ __forceinline__ void ArriveOnce(uint32_t barriers, uint32_t item) const {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) Arrive(Barrier(barriers, item));
  }
};

// The warp that finds items. Block b has item b of the list first, then whichever is next of those
// behind the first gridDim.x, by a counter that ends as it began: with n items, min(gridDim.x, n)
// blocks have a first one, and each of them counts until it meets the end, so n - gridDim.x counts
// (if positive) find an item and one of each such block finds none. That makes n in all, whichever
// way they fall, and the n-th sets the counter back to zero.
template <int kHeadDim>
__device__ __forceinline__ void FindItems(const PromptAttentionParams& params,
                                          const ItemRing<kHeadDim>& ring, uint32_t near_end) {
  using Shape = WgmmaShape<kHeadDim>;
  const uint32_t heads = params.attention.query_heads;
  uint32_t at = blockIdx.x;
  // The list has one for every block, there or not.
  PromptTile tile = params.tiles[at / heads];
  const uint32_t count = params.counters[1] * heads;
  const auto advance = [&] {
    if (threadIdx.x % kWarp == 0) at = gridDim.x + atomicInc(params.counters, count - 1);
    at = __shfl_sync(kAllLanes, at, 0);
    if (at < count) tile = params.tiles[at / heads];
  };
#pragma unroll 1
  for (uint32_t item = 0;; ++item) {
    PromptItem found = {};
#pragma unroll 1
    while (at < count) {
      found.query_head = at % heads;
      found.work = FindWork(params, tile, 0, kPromptTileRows, found.query_head);
      if (found.work.rows != 0) break;
      advance();
    }
    if (item >= kItemSlots) ring.WaitDone(item - kItemSlots);
    if (threadIdx.x % kWarp == 0) {
      found.key_tiles = (found.work.key_end + Shape::kKeys - 1) / Shape::kKeys -
                        found.work.key_begin / Shape::kKeys;
      ring.Item(item) = found;
    }
    ring.Found(item);
    if (found.work.rows == 0) return;
    WaitForPhase(near_end, item % 2);
    advance();
  }
}

// The warp that brings keys and values, for all items.
template <int kHeadDim>
__device__ __forceinline__ void BringItems(KvProducer<kHeadDim>& producer,
                                           const ItemRing<kHeadDim>& items,
                                           const KvTensorMaps& maps, uint32_t near_end) {
  uint32_t begin = 0;
#pragma unroll 1
  for (uint32_t item = 0; items.WaitFound(item); ++item) {
    producer.work = items.Item(item).work;
    const uint32_t end = begin + items.Item(item).key_tiles;
    items.Done(item);
    producer.Run(maps, begin, end, near_end);
    begin = end;
  }
}

// The warps that load queries, `thread` of kLoaderThreads: zeros for rows that do not exist, and
// nothing for a warpgroup that has none.
template <int kHeadDim>
__device__ __forceinline__ void LoadQueries(const AttentionParams& attention,
                                            const ItemRing<kHeadDim>& items, uint32_t thread) {
  using Shape = WgmmaShape<kHeadDim>;
  constexpr uint32_t kUnits = kHeadDim / 8;
  constexpr uint32_t kRowsAtOnce = kLoaderThreads / kUnits;
  static_assert(kLoaderThreads % kUnits == 0 && Shape::kGroupRows % kRowsAtOnce == 0);
  const uint32_t unit = thread % kUnits;
#pragma unroll 1
  for (uint32_t item = 0; items.WaitFound(item); ++item) {
    const PromptItem& found = items.Item(item);
    const uint32_t rows = found.work.rows;
    const uint32_t to = items.Query(item) + unit / 8 * Shape::kQuerySlab;
    const auto* from = static_cast<const __nv_bfloat16*>(attention.query) +
                       found.work.first_row * attention.query_stride + found.query_head * kHeadDim +
                       unit * 8;
    // With a tile for each slot, whoever found the item has waited already.
    if (Shape::kQueries < kItemSlots && item >= Shape::kQueries) {
      items.WaitDone(item - Shape::kQueries);
    }
    const uint32_t rows_end = rows > Shape::kGroupRows ? kPromptTileRows : Shape::kGroupRows;
#pragma unroll 4
    for (uint32_t row = thread / kUnits; row < rows_end; row += kRowsAtOnce) {
      const bool exists = row < rows;
      CopyAsync(to + SlabOffset(row, unit % 8),
                from + size_t{exists ? row : 0} * attention.query_stride, exists ? 16 : 0);
    }
    WaitForAllCopies();
    FenceSharedForAsync();
    items.Loaded(item);
    items.Done(item);
  }
}

}  // namespace weft::kernels::cuda

// The warp of Gemv that requests the weights, and the ring in which they arrive. Device code only.

#pragma once

#include "kernels/cuda/gemm/gemv_work.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/tensor_copy.cuh"

namespace weft::kernels::cuda {

// Position in the ring; the warps that fill it and those that empty it go through it alike.
template <uint32_t kElements>
struct GemvSlot {
  // Of shared memory.
  uint32_t shared;
  uint32_t slots;
  // Of its barriers: several rings, one after the other in the same place, have their own.
  uint32_t first_barrier = 0;
  uint32_t at = 0;
  // Of the slot's next phase.
  uint32_t parity = 0;

  __device__ __forceinline__ uint32_t Full() const {
    return shared + GemvShape::kFull + (first_barrier + at) * 8;
  }
  __device__ __forceinline__ uint32_t Empty() const {
    return shared + GemvShape::kEmpty + (first_barrier + at) * 8;
  }
  __device__ __forceinline__ uint32_t Weights() const {
    return shared + GemvShape::kRing + at * GemvChunk<kElements>::kSlotBytes;
  }
  // By those that fill, before they arrive at Full; by those that empty, after it, before Empty.
  __device__ __forceinline__ GemvRange* Columns(char* memory) const {
    return reinterpret_cast<GemvRange*>(memory + GemvShape::kColumns) + at;
  }
  __device__ __forceinline__ void Advance() {
    if (++at == slots) {
      at = 0;
      parity ^= 1;
    }
  }
};

// By one thread.
__device__ __forceinline__ void InitGemvBarriers(uint32_t shared, uint32_t slots) {
  for (uint32_t i = 0; i < slots; ++i) {
    InitBarrier(shared + GemvShape::kFull + i * 8, 1);
    InitBarrier(shared + GemvShape::kEmpty + i * 8, GemvShape::kWarps);
  }
  FenceBarriers();
}

// By a warp: the weights that this block of a later Gemv will request first, into the L2.
template <uint32_t kElements>
__device__ __forceinline__ void PrefetchNext(const GemvNext& next, const GemvNextPlan& plan) {
  if (plan.chunks == 0 || blockIdx.x >= plan.grid) return;
  const uint32_t lane = threadIdx.x % kWarp;
  const GemvRange range(plan.owned, blockIdx.x, plan.grid);
  const uint32_t chunks = next.k / kElements + (next.k % kElements != 0);
  for (uint32_t i = 0; i < plan.chunks; ++i) {
    const uint32_t column = range.begin + i / chunks * plan.pairs.Width();
    if (column >= range.end) break;
    const GemvTile tile(plan.pairs, column, range.end);
    const uint32_t element = i % chunks * kElements;
    if (!tile.Has(lane)) continue;
    const size_t row = size_t{tile.WeightRow(lane)} * next.k + element;
    PrefetchBulk(static_cast<const char*>(next.weight) + row * 2,
                 min(kElements, next.k - element) * 2);
  }
}

template <uint32_t kElements>
class GemvStream {
 public:
  __device__ __forceinline__ GemvStream(char* memory, uint32_t slots)
      : memory_(memory),
        slot_{SharedAddress(memory), slots},
        lane_(threadIdx.x % kWarp),
        policy_(EvictFirstPolicy()) {}

  // All of the block's weights, in the order in which they are used.
  __device__ __forceinline__ void Run(const GemvParams& params, const GemvPlan& plan) {
    GemvRange range(plan.owned, blockIdx.x, plan.grid);
    const uint32_t width = plan.pairs.Width();
    for (; range.begin < range.end; range.begin += GemvShape::kTiles * width) {
      RunPair(params, plan, range);
    }
    if (plan.claimed_tiles == 0) return;
    // The launch before leaves the counters behind when it ends.
    WaitForEarlierKernels();
    auto* counters = static_cast<uint32_t*>(params.workspace);
    while (true) {
      const uint32_t tile = Next(counters);
      if (tile >= plan.claimed_tiles) break;
      range.begin = plan.owned + tile * width;
      range.end = min(range.begin + width, plan.columns);
      RunPair(params, plan, range);
    }
    // The last block to come here: nobody claims any more.
    if (Next(counters + 1) + 1 == plan.grid && lane_ == 0) counters[0] = counters[1] = 0;
  }

  // Says that there are no more.
  __device__ __forceinline__ void End() {
    WaitForPhase(slot_.Empty(), slot_.parity ^ 1);
    if (lane_ == 0) {
      *slot_.Columns(memory_) = GemvRange();
      Arrive(slot_.Full());
    }
  }

 private:
  // Of the lane's row of the tile.
  __device__ __forceinline__ const char* Source(const void* weight, uint32_t k,
                                                const GemvTile& tile) const {
    return static_cast<const char*>(weight) + size_t{tile.WeightRow(lane_)} * k * 2;
  }

  __device__ __forceinline__ uint32_t Next(uint32_t* counter) const {
    uint32_t value = 0;
    if (lane_ == 0) value = atomicAdd(counter, 1u);
    return __shfl_sync(kAllLanes, value, 0);
  }

  // The tiles of a pair, or the only one that there is.
  __device__ __forceinline__ void RunPair(const GemvParams& params, const GemvPlan& plan,
                                          const GemvRange& range) {
    WaitForPhase(slot_.Empty(), slot_.parity ^ 1);
    if (lane_ == 0) *slot_.Columns(memory_) = range;
    for (uint32_t panel = 0; panel < plan.panels; ++panel) {
      const uint32_t first = panel * plan.panel_chunks;
      const uint32_t last = min(first + plan.panel_chunks, plan.chunks);
      for (uint32_t t = 0; t < GemvShape::kTiles; ++t) {
        const uint32_t column = range.begin + t * plan.pairs.Width();
        if (column >= range.end) break;
        RunTile(params, GemvTile(plan.pairs, column, range.end), first, last);
      }
    }
  }

  __device__ __forceinline__ void RunTile(const GemvParams& params, const GemvTile& tile,
                                          uint32_t first, uint32_t last) {
    const bool has = tile.Has(lane_);
    const char* source = Source(params.weight, params.k, tile);
#pragma unroll 1
    for (uint32_t chunk = first; chunk < last; ++chunk) {
      const uint32_t bytes = min(kElements, params.k - chunk * kElements) * 2;
      WaitForPhase(slot_.Empty(), slot_.parity ^ 1);
      if (lane_ == 0) ArriveExpecting(slot_.Full(), bytes * tile.Rows());
      __syncwarp();
      if (has) {
        CopyBulkOnce(slot_.Weights() + lane_ * GemvChunk<kElements>::kRowBytes,
                     source + size_t{chunk} * GemvChunk<kElements>::kBytes, bytes, slot_.Full(),
                     policy_);
      }
      slot_.Advance();
    }
  }

  char* memory_;
  GemvSlot<kElements> slot_;
  uint32_t lane_;
  uint64_t policy_;
};

}  // namespace weft::kernels::cuda

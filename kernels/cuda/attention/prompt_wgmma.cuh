// Prompt attention in bf16 by the warpgroup products of Hopper: a block works on one item - 128
// query rows of one head - after the other, and has three warpgroups. Those of the first find the
// items, load queries (prompt_items.cuh) and bring tiles of keys and values through two stages of
// shared memory each (prompt_ring.cuh), all of them ahead of the other two warpgroups, so that
// these go from item to item without waiting; they have 64 rows each. They start the products of
// queries and the next keys before those of weights and the values before, so that the softmax of
// the former runs under the latter; and they take turns at starting them, so that it runs under the
// other warpgroup's too. The structure is that of FlashAttention 3 (Shah et al. 2024). Device code
// only.

#pragma once

#include "kernels/cuda/attention/prompt_items.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/tensor_copy.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

// Registers of a thread, in multiples of eight; 40 + 2 * 232 are three times the 168 that a block
// of 384 threads starts with.
inline constexpr int kProducerRegisters = 40;
inline constexpr int kConsumerRegisters = 232;

// Named barriers: from these on, one for each warpgroup that multiplies.
inline constexpr uint32_t kTurnBarrier = 1;
inline constexpr uint32_t kGroupBarrier = 3;

// A warpgroup that multiplies. A lane has rows lane / 4 and + 8 of its warp's 16; sums are over its
// own columns until Finish.
template <int kHeadDim, bool kBias>
struct WgmmaGroup {
  using Shape = WgmmaShape<kHeadDim>;
  // Dimensions of the output that one product makes.
  static constexpr uint32_t kPanelDims = kHeadDim < 128 ? kHeadDim : 128;
  static constexpr uint32_t kPanels = kHeadDim / kPanelDims;
  static constexpr uint32_t kKeyTiles = Shape::kKeys / 8;

  const PromptWork& work;
  KvRing<kHeadDim> keys;
  KvRing<kHeadDim> values;
  uint32_t query;           // Shared address of the warpgroup's rows.
  uint32_t index;           // 0 or 1.
  uint32_t first_position;  // Of the warpgroup's first row.
  float factor;             // From score to exponent.
  float out[kPanels][kPanelDims / 2];
  float scores[Shape::kKeys / 2];  // Then weights.
  uint32_t weights[Shape::kKeys / 4];
  float row_max[2];
  float row_sum[2];
  float rescale[2];
  bool moved;

  __device__ __forceinline__ uint32_t Thread() const { return threadIdx.x % kWarpgroup; }
  // Of the warpgroup's rows, how many exist.
  __device__ __forceinline__ uint32_t Rows() const {
    const uint32_t before = index * Shape::kGroupRows;
    return min(work.rows > before ? work.rows - before : 0, uint32_t{Shape::kGroupRows});
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (uint32_t panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (uint32_t i = 0; i < kPanelDims / 2; ++i) out[panel][i] = 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < Shape::kKeys / 2; ++i) scores[i] = 0;
    row_max[0] = row_max[1] = -INFINITY;
    row_sum[0] = row_sum[1] = 0;
  }

  // Starts scores = query * keys^T.
  __device__ __forceinline__ void MultiplyKeys(uint32_t tile) {
    const uint64_t a = Descriptor<kNoLeading>(query);
    const uint64_t b = Descriptor<kNoLeading>(keys.Tile(tile));
#pragma unroll
    for (uint32_t k = 0; k < kHeadDim / 16; ++k) {
      const uint32_t in_row = k % 4 * 32;
      const uint64_t a_at = a + DescriptorOffset(k / 4 * Shape::kQuerySlab + in_row);
      const uint64_t b_at = b + DescriptorOffset(k / 4 * Shape::kKvSlab + in_row);
      if (k == 0) {
        MultiplyShared<false>(scores, a_at, b_at);
      } else {
        MultiplyShared<true>(scores, a_at, b_at);
      }
    }
    CommitProducts();
  }

  // Starts out += weights * values.
  __device__ __forceinline__ void MultiplyValues(uint32_t tile) {
    const uint64_t b = Descriptor<Shape::kKvSlab>(values.Tile(tile));
#pragma unroll
    for (uint32_t k = 0; k < Shape::kKeys / 16; ++k) {
#pragma unroll
      for (uint32_t panel = 0; panel < kPanels; ++panel) {
        MultiplyRegisters(out[panel], weights + 4 * k,
                          b + DescriptorOffset(panel * (kPanelDims / kSlabDims) * Shape::kKvSlab +
                                               k * 16 * kSlabRowBytes));
      }
    }
    CommitProducts();
  }

  __device__ __forceinline__ void PinOut() {
#pragma unroll
    for (uint32_t panel = 0; panel < kPanels; ++panel) Pin(out[panel]);
  }

  // Calls visit(score, column, distance) for each of the lane's scores: key position less query
  // position is column - distance, the column a constant of the unrolled code.
  template <typename Visit>
  __device__ __forceinline__ void ForEachScore(uint32_t first_key, Visit visit) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t row = Thread() / kWarp * 16 + lane / 4;
    const int offset =
        static_cast<int>(first_position + row) - static_cast<int>(first_key + lane % 4 * 2);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const int distance = offset + static_cast<int>(half * 8);
#pragma unroll
      for (uint32_t n = 0; n < kKeyTiles; ++n) {
        visit(scores[4 * n + 2 * half], static_cast<int>(n * 8), distance);
        visit(scores[4 * n + 2 * half + 1], static_cast<int>(n * 8 + 1), distance);
      }
    }
  }

  // From products to exponents over `factor`, minus infinity where a row does not see the key.
  __device__ __forceinline__ void Mask(uint32_t first_key) {
    if constexpr (kBias) {
      const ScoreBias bias = work.bias;
      ForEachScore(first_key, [&](float& score, int column, int distance) {
        score = bias.Exponent(score, column - distance);
      });
    }
    // The diagonal, the end of the context and the window's edge; other tiles are seen whole.
    const uint32_t window = work.window;
    if (first_key + Shape::kKeys - 1 > first_position ||
        first_key + window < first_position + Shape::kGroupRows) {
      ForEachScore(first_key, [&](float& score, int column, int distance) {
        // Keys ahead of the query wrap to more than any window.
        const bool seen = static_cast<uint32_t>(distance - column) < window;
        if (!seen) score = -INFINITY;
      });
    }
  }

  // Scores become weights 2^(factor * (score - maximum so far)); sums so far are brought to the new
  // maximum, the output is left to RescaleOut.
  __device__ __forceinline__ void Soften() {
    moved = false;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const float before = row_max[half];
      // Chains of their own for even and odd columns: this is all that runs in the warp.
      float top = fmaxf(before, scores[2 * half]);
      float odd_top = scores[2 * half + 1];
#pragma unroll
      for (uint32_t n = 1; n < kKeyTiles; ++n) {
        top = fmaxf(top, scores[4 * n + 2 * half]);
        odd_top = fmaxf(odd_top, scores[4 * n + 2 * half + 1]);
      }
      top = fmaxf(top, odd_top);
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      row_max[half] = top;
      // A row that has seen no key yet: minus infinity less itself would be NaN.
      const float base = top == -INFINITY ? 0.0f : top;
      // Exactly one when nothing moved, which a fused multiply-add would not give.
      rescale[half] = Exp2((before - base) * factor);
      moved = moved || top != before;
      const float shift = -base * factor;
      float even_sum = 0;
      float odd_sum = 0;
#pragma unroll
      for (uint32_t n = 0; n < kKeyTiles; ++n) {
        float& even = scores[4 * n + 2 * half];
        float& odd = scores[4 * n + 2 * half + 1];
        even = Exp2(fmaf(even, factor, shift));
        odd = Exp2(fmaf(odd, factor, shift));
        even_sum += even;
        odd_sum += odd;
      }
      row_sum[half] = fmaf(row_sum[half], rescale[half], even_sum + odd_sum);
    }
    // All of this before whatever products the caller waits for next.
    Pin(scores);
    Pin(row_sum);
  }

  __device__ __forceinline__ void RescaleOut() {
    // Most tiles raise no maximum; a factor of one changes nothing.
    if (!__any_sync(kAllLanes, moved)) return;
#pragma unroll
    for (uint32_t panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (uint32_t i = 0; i < kPanelDims / 2; ++i) out[panel][i] *= rescale[i / 2 % 2];
    }
  }

  // The sum's layout is the left operand's: columns 8 n of two n make the 16 of one product.
  __device__ __forceinline__ void PackWeights() {
#pragma unroll
    for (uint32_t i = 0; i < Shape::kKeys / 4; ++i) {
      weights[i] = PackBfloat16(scores[2 * i], scores[2 * i + 1]);
    }
  }

  // After Soften and the end of the products before: their values are free, their output is brought
  // to the new maximum, and the new weights may take the registers of the old. `first`: there were
  // none.
  __device__ __forceinline__ void PrepareValues(uint32_t tile, bool first) {
    WaitForProducts<0>();
    Pin(weights);
    PinOut();
    if (!first) values.Release(tile - 1);
    // In this order: with the branch of RescaleOut behind it, ptxas leaves the packing out of this
    // warpgroup's turn.
    PackWeights();
    RescaleOut();
  }

  // The item's tiles are begin .. end - 1 of the rings. `paired`: the other warpgroup takes part,
  // in turns: a turn comes with the arrival of the other's 128 threads, and the last one hands on
  // to nobody, so that nothing is left of one item for the next. The loop ends with the softmax and
  // begins with waiting for the products that run beside it; where both stood in one straight piece
  // of code, ptxas would wait first.
  __device__ __forceinline__ void Run(uint32_t begin, uint32_t end, bool paired) {
    uint32_t first_key = work.key_begin / Shape::kKeys * Shape::kKeys;
    if (paired && index == 1 && end - begin > 1) NamedBarrierArrive(kTurnBarrier, 2 * kWarpgroup);
    keys.WaitFull(begin);
    Pin(scores);
    ProductFence();
    MultiplyKeys(begin);
    WaitForProducts<0>();
    Pin(scores);
    keys.Release(begin);
    Mask(first_key);
    Soften();
#pragma unroll 1
    for (uint32_t tile = begin + 1; tile < end; ++tile) {
      PrepareValues(tile - 1, tile - 1 == begin);
      first_key += Shape::kKeys;
      keys.WaitFull(tile);
      if (paired) NamedBarrier(kTurnBarrier + index, 2 * kWarpgroup);
      Pin(scores);
      ProductFence();
      MultiplyKeys(tile);
      values.WaitFull(tile - 1);
      Pin(weights);
      PinOut();
      // Again, as the compiler puts one here for the registers of the weights anyway.
      ProductFence();
      MultiplyValues(tile - 1);
      if (paired && (index == 0 || tile + 1 < end)) {
        NamedBarrierArrive(kTurnBarrier + (index ^ 1), 2 * kWarpgroup);
      }
      WaitForProducts<1>();
      Pin(scores);
      keys.Release(tile);
      Mask(first_key);
      Soften();
    }
    PrepareValues(end - 1, end - 1 == begin);
    values.WaitFull(end - 1);
    Pin(weights);
    PinOut();
    ProductFence();
    MultiplyValues(end - 1);
    WaitForProducts<0>();
    PinOut();
    values.Release(end - 1);
  }

  // Has no rows: only hands the tiles on. One by one, as they land: see KvRing.
  __device__ __forceinline__ void Skip(uint32_t begin, uint32_t end) const {
#pragma unroll 1
    for (uint32_t tile = begin; tile < end; ++tile) {
      keys.WaitFull(tile);
      keys.Release(tile);
      values.WaitFull(tile);
      values.Release(tile);
    }
  }

  // Divides by the sums and stores, by way of the warpgroup's query rows in shared memory, so that
  // stores to memory are whole 16-byte units.
  __device__ __forceinline__ void Finish(const float* sinks, uint32_t query_head, __nv_bfloat16* to,
                                         size_t stride) const {
    // All warps' products have read the query; from here on each warp has its own 16 rows.
    NamedBarrier(kGroupBarrier + index, kWarpgroup);
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t first_row = Thread() / kWarp * 16;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      float sum = row_sum[half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if constexpr (kBias) sum += SinkWeight(sinks, query_head, row_max[half]);
      const float inverse = 1 / sum;
      const uint32_t row = first_row + half * 8 + lane / 4;
#pragma unroll
      for (uint32_t unit = 0; unit < kHeadDim / 8; ++unit) {
        const float* pair = out[unit / (kPanelDims / 8)] + unit % (kPanelDims / 8) * 4 + 2 * half;
        StoreShared(query + unit / 8 * Shape::kQuerySlab + SlabOffset(row, unit % 8) + lane % 4 * 4,
                    PackBfloat16(pair[0] * inverse, pair[1] * inverse));
      }
    }
    __syncwarp();
    constexpr uint32_t kUnits = kHeadDim / 8;
    const uint32_t rows = Rows();
#pragma unroll
    for (uint32_t i = 0; i < 16 * kUnits / kWarp; ++i) {
      const uint32_t at = lane + i * kWarp;
      const uint32_t row = first_row + at / kUnits;
      const uint32_t unit = at % kUnits;
      if (row >= rows) continue;
      const uint4 eight =
          LoadShared(query + unit / 8 * Shape::kQuerySlab + SlabOffset(row, unit % 8));
      *reinterpret_cast<uint4*>(to + row * stride + unit * 8) = eight;
    }
  }
};

// Of the block's items the rows of warpgroup `index` of those that multiply.
template <int kHeadDim, bool kBias>
__device__ __forceinline__ void MultiplyItems(const AttentionParams& attention, const float* sinks,
                                              const ItemRing<kHeadDim>& items,
                                              const KvRing<kHeadDim>& keys,
                                              const KvRing<kHeadDim>& values, uint32_t index) {
  using Shape = WgmmaShape<kHeadDim>;
  const uint32_t first_row = index * Shape::kGroupRows;
  const size_t out_stride = size_t{attention.query_heads} * kHeadDim;
  uint32_t begin = 0;
#pragma unroll 1
  for (uint32_t item = 0; items.WaitFound(item); ++item) {
    const PromptItem& found = items.Item(item);
    const PromptWork& work = found.work;
    const uint32_t end = begin + OfWarp(found.key_tiles);
    const bool paired = work.rows > Shape::kGroupRows;
    WgmmaGroup<kHeadDim, kBias> group = {work, keys, values};
    if (index == 1 && !paired) {
      group.Skip(begin, end);
    } else {
      group.query = items.Query(item) + first_row * kSlabRowBytes;
      group.index = index;
      group.first_position = work.first_position + first_row;
      group.factor = kBias ? 1.0f : attention.scale * kLog2E;
      group.Clear();
      items.WaitLoaded(item);
      group.Run(begin, end, paired);
      group.Finish(sinks, found.query_head,
                   static_cast<__nv_bfloat16*>(attention.out) +
                       (work.first_row + first_row) * out_stride + found.query_head * kHeadDim,
                   out_stride);
    }
    items.Done(item);
    begin = end;
  }
}

// Grid: as many blocks as work at once, or less.
template <int kHeadDim, bool kBias>
__global__ void __launch_bounds__(WgmmaShape<kHeadDim>::kThreads, 1)
    PromptAttentionWgmma(const __grid_constant__ PromptAttentionParams params,
                         const __grid_constant__ KvTensorMaps maps) {
  using Shape = WgmmaShape<kHeadDim>;
  extern __shared__ __align__(1024) unsigned char wgmma_bytes[];
  __shared__ WgmmaShared<kHeadDim> shared;
  if (threadIdx.x == 0) PrepareBarriers(shared);
  if (threadIdx.x == kWarp) PrefetchMap(&maps.keys);
  if (threadIdx.x == 2 * kWarp) PrefetchMap(&maps.values);
  __syncthreads();
  const uint32_t queries = OfWarp((SharedAddress(wgmma_bytes) + Shape::kAlignment - 1) /
                                  Shape::kAlignment * Shape::kAlignment);
  const uint32_t key_tiles = queries + Shape::kQueries * Shape::kQueryBytes;
  const KvRing<kHeadDim> keys = {key_tiles, OfWarp(SharedAddress(shared.full[0])),
                                 OfWarp(SharedAddress(shared.empty[0]))};
  const KvRing<kHeadDim> values = {key_tiles + Shape::kStages * Shape::kTileBytes,
                                   OfWarp(SharedAddress(shared.full[1])),
                                   OfWarp(SharedAddress(shared.empty[1]))};
  const ItemRing<kHeadDim> items = {shared.items, queries, SharedAddress(shared.found),
                                    SharedAddress(shared.loaded), SharedAddress(shared.done)};
  const uint32_t warp = OfWarp(threadIdx.x / kWarp);
  const uint32_t warpgroup = warp / (kWarpgroup / kWarp);
  if (warpgroup == 0) {
    ReduceRegisters<kProducerRegisters>();
    const uint32_t near_end = SharedAddress(&shared.near_end);
    if (warp == 0) {
      KvProducer<kHeadDim> producer = {params.attention.kv.kv_heads, keys, values,
                                       SharedAddress(&shared.landed), 0};
      BringItems(producer, items, maps, near_end);
    } else if (warp == 1) {
      FindItems(params, items, near_end);
    } else {
      LoadQueries(params.attention, items, threadIdx.x - 2 * kWarp);
    }
  } else {
    RaiseRegisters<kConsumerRegisters>();
    MultiplyItems<kHeadDim, kBias>(params.attention, params.sinks, items, keys, values,
                                   warpgroup - 1);
  }
}

}  // namespace weft::kernels::cuda

// Prompt attention in bf16 on the tensor cores: blocks of 128 query rows of one head, keys and
// values 64 at a time (one block of the cache) through two stages of shared memory that
// asynchronous copies fill. A warp owns its rows from the scores to the output: products of
// queries and keys in registers, online softmax among the four lanes of a row, weights straight
// into the second product. Device code only.

#pragma once

#include "kernels/cuda/attention/prompt_work.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

template <int kHeadDim>
struct PromptShape {
  // Wide heads: 16 rows a warp, or the output would not fit the registers. Others: 32 rows, so that
  // each fragment of keys and values read from shared memory is used twice.
  static constexpr int kWarps = kHeadDim > 128 ? 8 : 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kWarpRows = kPromptTileRows / kWarps;
  static constexpr int kRowTiles = kWarpRows / 16;
  static constexpr int kKeyTiles = kKvBlockTokens / 8;
  static constexpr int kDimTiles = kHeadDim / 8;
  // Elements between rows in shared memory: an odd number of 16-byte units, so that the eight rows
  // of an ldmatrix lie in different banks.
  static constexpr int kStride = kHeadDim + 8;
  static constexpr int kStages = 2;
  static constexpr int kQueryElements = kPromptTileRows * kStride;
  static constexpr int kKvElements = kKvBlockTokens * kStride;
  static constexpr int kSharedBytes =
      (kQueryElements + kStages * 2 * kKvElements) * static_cast<int>(sizeof(__nv_bfloat16));
  static constexpr int kBlocksPerSm = kHeadDim > 128 ? 1 : 2;
  static_assert(kHeadDim % 16 == 0 && kWarpRows % 16 == 0);
};

// What a warp carries from tile to tile. Each lane has rows lane / 4 and + 8 of each row tile; the
// sums are over the lane's own columns until Finish.
template <int kHeadDim>
struct PromptState {
  using Shape = PromptShape<kHeadDim>;
  float out[Shape::kRowTiles][Shape::kDimTiles][4];
  float row_max[Shape::kRowTiles][2];
  float row_sum[Shape::kRowTiles][2];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < Shape::kDimTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[m][n][i] = 0;
      }
      row_max[m][0] = row_max[m][1] = -INFINITY;
      row_sum[m][0] = row_sum[m][1] = 0;
    }
  }
};

template <int kHeadDim>
using PromptScores = float[PromptShape<kHeadDim>::kRowTiles][PromptShape<kHeadDim>::kKeyTiles][4];

// Rows of kHeadDim elements, from_stride apart; those outside [valid_begin, valid_end) become zeros
// and are not read.
template <int kHeadDim, int kRows>
__device__ __forceinline__ void CopyRows(uint32_t to, const __nv_bfloat16* from,
                                         uint32_t from_stride, uint32_t valid_begin,
                                         uint32_t valid_end) {
  using Shape = PromptShape<kHeadDim>;
  constexpr int kChunks = kHeadDim / 8;
  static_assert(kRows * kChunks % Shape::kThreads == 0);
  // Opaque, so that each tile works out its offsets again: hoisted out of the loop over tiles they
  // would take registers that the widest shapes do not have.
  uint32_t thread = threadIdx.x;
  Forget(thread);
#pragma unroll
  for (int i = 0; i < kRows * kChunks / Shape::kThreads; ++i) {
    const uint32_t chunk = thread + i * Shape::kThreads;
    const uint32_t row = chunk / kChunks;
    const uint32_t column = chunk % kChunks * 8;
    const bool valid = row >= valid_begin && row < valid_end;
    // A row that is not read gives no address outside the array either.
    const size_t offset = valid ? size_t{row} * from_stride + column : 0;
    CopyAsync(to + (row * Shape::kStride + column) * sizeof(__nv_bfloat16), from + offset,
              valid ? 16u : 0u);
  }
}

// Keys and values of one block of the cache into the stage at `to`.
template <int kHeadDim>
__device__ __forceinline__ void CopyKv(uint32_t to, const KvLayer& kv, const PromptWork& work,
                                       uint32_t tile, uint32_t block) {
  using Shape = PromptShape<kHeadDim>;
  const size_t at = (size_t{block} * kv.kv_heads + work.kv_head) * (kKvBlockTokens * kHeadDim);
  const uint32_t first_key = tile * kKvBlockTokens;
  const uint32_t begin = work.key_begin > first_key ? work.key_begin - first_key : 0;
  const uint32_t end = work.key_end - first_key;
  CopyRows<kHeadDim, kKvBlockTokens>(to, static_cast<const __nv_bfloat16*>(kv.keys) + at, kHeadDim,
                                     begin, end);
  CopyRows<kHeadDim, kKvBlockTokens>(
      to + Shape::kKvElements * static_cast<uint32_t>(sizeof(__nv_bfloat16)),
      static_cast<const __nv_bfloat16*>(kv.values) + at, kHeadDim, begin, end);
}

// scores = query * keys^T. `query`: this lane's address in the first 16 x 16 of the warp's rows;
// `keys`: in the first 16 keys x 16 dimensions.
template <int kHeadDim>
__device__ __forceinline__ void MultiplyKeys(PromptScores<kHeadDim>& scores, uint32_t query,
                                             uint32_t keys) {
  using Shape = PromptShape<kHeadDim>;
  constexpr uint32_t kSixteenRows = 16 * Shape::kStride * sizeof(__nv_bfloat16);
#pragma unroll
  for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][n][i] = 0;
    }
  }
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t a[Shape::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
      LoadMatrices(a[m], query + m * kSixteenRows + k * 32);
    }
#pragma unroll
    for (int n = 0; n < Shape::kKeyTiles; n += 2) {
      uint32_t b[4];
      LoadMatrices(b, keys + n / 2 * kSixteenRows + k * 32);
#pragma unroll
      for (int m = 0; m < Shape::kRowTiles; ++m) {
        MultiplyAdd(scores[m][n], a[m], b[0], b[1]);
        MultiplyAdd(scores[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// out += weights * values. `values`: this lane's address in the first 16 keys x 16 dimensions.
template <int kHeadDim>
__device__ __forceinline__ void MultiplyValues(PromptState<kHeadDim>& state,
                                               const PromptScores<kHeadDim>& weights,
                                               uint32_t values) {
  using Shape = PromptShape<kHeadDim>;
  constexpr uint32_t kSixteenRows = 16 * Shape::kStride * sizeof(__nv_bfloat16);
#pragma unroll
  for (int k = 0; k < Shape::kKeyTiles / 2; ++k) {
    uint32_t a[Shape::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
      const float(&left)[4] = weights[m][2 * k];
      const float(&right)[4] = weights[m][2 * k + 1];
      a[m][0] = PackBfloat16(left[0], left[1]);
      a[m][1] = PackBfloat16(left[2], left[3]);
      a[m][2] = PackBfloat16(right[0], right[1]);
      a[m][3] = PackBfloat16(right[2], right[3]);
    }
#pragma unroll
    for (int n = 0; n < Shape::kDimTiles; n += 2) {
      uint32_t b[4];
      LoadMatricesTransposed(b, values + k * kSixteenRows + n * 16);
#pragma unroll
      for (int m = 0; m < Shape::kRowTiles; ++m) {
        MultiplyAdd(state.out[m][n], a[m], b[0], b[1]);
        MultiplyAdd(state.out[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Calls visit(score, column, distance) for each of the lane's scores: key position less query
// position is column - distance. The column is a constant of the unrolled code, the distance one
// number a row.
template <int kHeadDim, typename Visit>
__device__ __forceinline__ void ForEachScore(PromptScores<kHeadDim>& scores, uint32_t first_key,
                                             uint32_t first_position, Visit visit) {
  using Shape = PromptShape<kHeadDim>;
  uint32_t lane = threadIdx.x % kWarp;
  Forget(lane);
  const int offset =
      static_cast<int>(first_position + lane / 4) - static_cast<int>(first_key + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int distance = offset + m * 16 + half * 8;
#pragma unroll
      for (int n = 0; n < Shape::kKeyTiles; ++n) {
        // As in CopyRows: the terms of no more than two scores at a time.
        Forget(distance);
        visit(scores[m][n][2 * half], n * 8, distance);
        visit(scores[m][n][2 * half + 1], n * 8 + 1, distance);
      }
    }
  }
}

// Scores become weights 2^(factor * (score - maximum so far)); output and sums so far are brought
// to the new maximum.
template <int kHeadDim>
__device__ __forceinline__ void Soften(PromptState<kHeadDim>& state, PromptScores<kHeadDim>& scores,
                                       float factor) {
  using Shape = PromptShape<kHeadDim>;
  float rescale[Shape::kRowTiles][2];
  bool moved = false;
#pragma unroll
  for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float before = state.row_max[m][half];
      float top = before;
#pragma unroll
      for (int n = 0; n < Shape::kKeyTiles; ++n) {
        top = fmaxf(top, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      state.row_max[m][half] = top;
      // A row that has seen no key yet: minus infinity less itself would be NaN.
      const float base = top == -INFINITY ? 0.0f : top;
      // Exactly one when nothing moved, which a fused multiply-add would not give.
      rescale[m][half] = Exp2((before - base) * factor);
      moved = moved || top != before;
      float sum = state.row_sum[m][half] * rescale[m][half];
#pragma unroll
      for (int n = 0; n < Shape::kKeyTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[m][n][i] = Exp2(fmaf(scores[m][n][i], factor, -base * factor));
          sum += scores[m][n][i];
        }
      }
      state.row_sum[m][half] = sum;
    }
  }
  // Most tiles raise no maximum; a factor of one changes nothing.
  if (!__any_sync(kAllLanes, moved)) return;
#pragma unroll
  for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kDimTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.out[m][n][i] *= rescale[m][i / 2];
    }
  }
}

// What a warp does with one tile of keys and values that lies in shared memory.
template <int kHeadDim, bool kBias>
struct PromptWarp {
  using Shape = PromptShape<kHeadDim>;
  // In shared memory and read again for each tile: registers are what a wide head runs out of.
  const PromptWork& work;
  const AttentionParams& params;
  uint32_t query;       // This lane's shared addresses, as MultiplyKeys and MultiplyValues
  uint32_t key_offset;  // take them; those of keys and values relative to the stage.
  uint32_t value_offset;

  __device__ __forceinline__ PromptWarp(const PromptWork& work_of_block,
                                        const AttentionParams& attention, uint32_t shared)
      : work(work_of_block), params(attention) {
    const uint32_t lane = threadIdx.x % kWarp;
    constexpr uint32_t kSize = sizeof(__nv_bfloat16);
    query = shared + ((FirstRow() + lane % 16) * Shape::kStride + lane / 16 * 8) * kSize;
    key_offset = ((lane / 16 * 8 + lane % 8) * Shape::kStride + lane / 8 % 2 * 8) * kSize;
    value_offset = (Shape::kKvElements + lane % 16 * Shape::kStride + lane / 16 * 8) * kSize;
  }

  // Of the warp's rows: the first within the block's, and how many exist.
  __device__ __forceinline__ uint32_t FirstRow() const {
    return threadIdx.x / kWarp * Shape::kWarpRows;
  }
  __device__ __forceinline__ uint32_t Rows() const {
    const uint32_t rows = work.rows > FirstRow() ? work.rows - FirstRow() : 0;
    return min(rows, uint32_t{Shape::kWarpRows});
  }

  __device__ __forceinline__ void Attend(PromptState<kHeadDim>& state, uint32_t stage,
                                         uint32_t tile) const {
    const uint32_t first_key = tile * kKvBlockTokens;
    const uint32_t last_key = first_key + kKvBlockTokens - 1;
    const uint32_t first_position = work.first_position + FirstRow();
    const uint32_t window = work.window;
    // Uniform over the warp: nothing here that any of its rows sees.
    if (Rows() == 0 || first_key >= first_position + Rows() ||
        last_key + window <= first_position) {
      return;
    }
    PromptScores<kHeadDim> scores;
    MultiplyKeys<kHeadDim>(scores, query, stage + key_offset);
    if constexpr (kBias) {
      const ScoreBias bias = work.bias;
      ForEachScore<kHeadDim>(scores, first_key, first_position,
                             [&](float& score, int column, int distance) {
                               score = bias.Exponent(score, column - distance);
                             });
    }
    // The diagonal, the end of the context and the window's edge; other tiles are seen whole.
    if (last_key > first_position || first_key + window < first_position + Shape::kWarpRows) {
      ForEachScore<kHeadDim>(scores, first_key, first_position,
                             [&](float& score, int column, int distance) {
                               // Keys ahead of the query wrap to more than any window.
                               const bool seen = static_cast<uint32_t>(distance - column) < window;
                               if (!seen) score = -INFINITY;
                             });
    }
    Soften<kHeadDim>(state, scores, kBias ? 1.0f : params.scale * kLog2E);
    MultiplyValues<kHeadDim>(state, scores, stage + value_offset);
  }

  // Divides by the sums and stores, by way of the warp's own query rows in shared memory, which no
  // other warp reads, so that stores to memory are whole 16-byte units.
  __device__ __forceinline__ void Finish(const PromptState<kHeadDim>& state, const float* sinks,
                                         __nv_bfloat16* shared_rows, __nv_bfloat16* out,
                                         size_t out_stride) const {
    const uint32_t lane = threadIdx.x % kWarp;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = state.row_sum[m][half];
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        if constexpr (kBias) sum += SinkWeight(sinks, blockIdx.x, state.row_max[m][half]);
        const float inverse = 1 / sum;
        __nv_bfloat16* row =
            shared_rows + (m * 16 + half * 8 + lane / 4) * Shape::kStride + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < Shape::kDimTiles; ++n) {
          *reinterpret_cast<uint32_t*>(row + n * 8) = PackBfloat16(
              state.out[m][n][2 * half] * inverse, state.out[m][n][2 * half + 1] * inverse);
        }
      }
    }
    __syncwarp();
    constexpr uint32_t kChunks = kHeadDim / 8;
    for (uint32_t chunk = lane; chunk < Rows() * kChunks; chunk += kWarp) {
      const uint32_t row = chunk / kChunks;
      const uint32_t column = chunk % kChunks * 8;
      Store(out + row * out_stride + column, Load(shared_rows + row * Shape::kStride + column));
    }
  }
};

// Grid: query heads x entries of the work list.
template <int kHeadDim, bool kBias>
__global__ void __launch_bounds__(PromptShape<kHeadDim>::kThreads,
                                  PromptShape<kHeadDim>::kBlocksPerSm)
    PromptAttentionTiles(PromptAttentionParams params) {
  using Shape = PromptShape<kHeadDim>;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const AttentionParams& attention = params.attention;
  __shared__ PromptWork work;
  if (threadIdx.x < kWarp) {
    const PromptWork found =
        FindWork(params, params.tiles[blockIdx.y], 0, kPromptTileRows, blockIdx.x);
    if (threadIdx.x == 0) work = found;
  }
  __syncthreads();
  if (work.rows == 0) return;
  constexpr uint32_t kSize = sizeof(__nv_bfloat16);
  constexpr uint32_t kStageBytes = 2 * Shape::kKvElements * kSize;
  const uint32_t shared = SharedAddress(shared_bytes);
  const uint32_t stages = shared + Shape::kQueryElements * kSize;
  const uint32_t tile_begin = work.key_begin / kKvBlockTokens;
  const uint32_t tile_end = (work.key_end + kKvBlockTokens - 1) / kKvBlockTokens;
  CopyRows<kHeadDim, kPromptTileRows>(shared,
                                      static_cast<const __nv_bfloat16*>(attention.query) +
                                          work.first_row * attention.query_stride +
                                          blockIdx.x * kHeadDim,
                                      attention.query_stride, 0, work.rows);
  CopyKv<kHeadDim>(stages, attention.kv, work, tile_begin, work.blocks[tile_begin]);
  // Known one tile ahead, so that no copy waits for the table.
  uint32_t next_block = work.blocks[min(tile_begin + 1, tile_end - 1)];
  const PromptWarp<kHeadDim, kBias> warp(work, attention, shared);
  PromptState<kHeadDim> state;
  state.Clear();
  uint32_t stage = 0;
  for (uint32_t tile = tile_begin; tile < tile_end; ++tile) {
    WaitForAllCopies();
    // This tile is there for all warps, and all warps have left the other stage.
    __syncthreads();
    if (tile + 1 < tile_end) {
      CopyKv<kHeadDim>(stages + (stage ^ 1) * kStageBytes, attention.kv, work, tile + 1,
                       next_block);
    }
    if (tile + 2 < tile_end) next_block = work.blocks[tile + 2];
    warp.Attend(state, stages + stage * kStageBytes, tile);
    stage ^= 1;
  }
  const uint32_t first_row = warp.FirstRow();
  const size_t out_stride = size_t{attention.query_heads} * kHeadDim;
  warp.Finish(state, params.sinks,
              reinterpret_cast<__nv_bfloat16*>(shared_bytes) + first_row * Shape::kStride,
              static_cast<__nv_bfloat16*>(attention.out) +
                  (work.first_row + first_row) * out_stride + blockIdx.x * kHeadDim,
              out_stride);
}

}  // namespace weft::kernels::cuda

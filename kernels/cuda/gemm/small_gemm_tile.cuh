// A CTA's part of a product with few rows: a ring of stages, each 64 of k wide, that one thread
// fills and the warpgroups multiply from; then the sum over the cluster and the epilogue. Device
// code only.
//
// A stage holds 64 weight rows a warpgroup and all tokens. Ranks in the cluster: split * sharers +
// sharer. The CTAs of a split work on neighbouring tiles and each loads its share of the tokens for
// all of them.

#pragma once

#include "kernels/cuda/elementwise/activate.cuh"
#include "kernels/cuda/gemm/small_gemm.h"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/tensor_copy.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/ptx/wgmma_tokens.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

inline constexpr uint32_t kSmallGemmStep = 64;
inline constexpr uint32_t kSmallGemmGroupRows = 64;

template <int kTokenCount, int kGroupCount>
struct SmallGemmShape {
  static constexpr int kTokens = kTokenCount;
  static constexpr int kGroups = kGroupCount;
  static constexpr int kConsumers = kGroups * 128;
  static constexpr int kThreads = kConsumers + kWarp;
  static constexpr uint32_t kGroupBytes = kSmallGemmGroupRows * kSmallGemmStep * 2;
  static constexpr uint32_t kTokenBytes = kTokens * kSmallGemmStep * 2;
  static constexpr uint32_t kStageBytes = kGroups * kGroupBytes + kTokenBytes;
  // Two CTAs fit on an SM, of one launch or of two that overlap: 113 KB each with the barriers.
  static constexpr uint32_t kStages = 110 * 1024 / kStageBytes < 12 ? 110 * 1024 / kStageBytes : 12;
  // The swizzle wants multiples of 1024; the runtime promises 16.
  static constexpr uint32_t kAlignment = 1024;
  static constexpr uint32_t kSharedBytes = kStages * kStageBytes + kAlignment;
  // Floats from a token's sums to the next's: no two lanes of a warp store to one bank.
  static constexpr uint32_t kSumStride = kGroups * kSmallGemmGroupRows + 4;
  static_assert(kStages >= 4 && kTokens * kSumStride * 4 <= kStages * kStageBytes);
};

struct SmallGemmWork {
  void* out;
  uint32_t rows;
  // Of out.
  uint32_t columns;
  uint32_t out_stride;
  // Of a tile: 64 a warpgroup, but 64 in all for gates.
  uint32_t tile_columns;
  // Weight rows from a warpgroup's first to the next one's.
  uint32_t group_step;
  // In steps of 64.
  uint32_t k_steps;
  uint32_t splits;
  uint32_t sharers;
  DType out_type;
  SmallGemmEpilogue epilogue;
};

// What a CTA works on.
struct SmallGemmPart {
  uint32_t split;
  uint32_t sharer;
  // First column of the tile.
  uint32_t column;
  uint32_t begin;
  uint32_t steps;
  // Where the matrix, the tokens that are multiplied and the rows of `out` begin, and how many of
  // these there are; a product of one matrix with all rows begins at zero.
  uint32_t weight_row;
  uint32_t first_token;
  uint32_t first_row;
  uint32_t rows;
  // Which of the tokens each row of `out` is; null: one after the other.
  const uint32_t* token_of_row;

  static __device__ __forceinline__ SmallGemmPart Of(const SmallGemmWork& work) {
    const uint32_t rank = ClusterRank();
    const uint32_t cluster = blockIdx.x / (work.splits * work.sharers);
    SmallGemmPart part;
    part.split = rank / work.sharers;
    part.sharer = rank % work.sharers;
    part.column = (cluster * work.sharers + part.sharer) * work.tile_columns;
    part.begin = work.k_steps * part.split / work.splits;
    part.steps = work.k_steps * (part.split + 1) / work.splits - part.begin;
    part.weight_row = 0;
    part.first_token = 0;
    part.first_row = 0;
    part.rows = work.rows;
    part.token_of_row = nullptr;
    return part;
  }
};

// Addresses in shared memory: stages of weights then tokens, and a barrier each for full and empty.
template <typename Shape>
struct SmallGemmRing {
  uint32_t data;
  uint32_t barriers;

  __device__ __forceinline__ uint32_t Weights(uint32_t stage) const {
    return data + stage * Shape::kStageBytes;
  }
  __device__ __forceinline__ uint32_t Tokens(uint32_t stage) const {
    return Weights(stage) + Shape::kGroups * Shape::kGroupBytes;
  }
  __device__ __forceinline__ uint32_t Full(uint32_t stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ uint32_t Empty(uint32_t stage) const {
    return barriers + (Shape::kStages + stage) * 8;
  }
  __device__ __forceinline__ void Init(uint32_t sharers) const {
    for (uint32_t stage = 0; stage < Shape::kStages; ++stage) {
      InitBarrier(Full(stage), 1);
      InitBarrier(Empty(stage), Shape::kConsumers / kWarp * sharers);
    }
    PublishBarriers();
  }
};

template <typename Shape>
__device__ __forceinline__ void LoadWeights(const CUtensorMap* map, const SmallGemmWork& work,
                                            const SmallGemmPart& part,
                                            const SmallGemmRing<Shape>& ring, uint32_t step,
                                            uint32_t stage) {
  ArriveExpecting(ring.Full(stage), Shape::kStageBytes);
#pragma unroll
  for (int group = 0; group < Shape::kGroups; ++group) {
    CopyBoxReadOnce(ring.Weights(stage) + group * Shape::kGroupBytes, map,
                    (part.begin + step) * kSmallGemmStep,
                    part.weight_row + part.column + group * work.group_step, ring.Full(stage));
  }
}

template <typename Shape>
__device__ __forceinline__ void LoadTokens(const CUtensorMap* map, const SmallGemmWork& work,
                                           const SmallGemmPart& part,
                                           const SmallGemmRing<Shape>& ring, uint32_t step,
                                           uint32_t stage) {
  const uint32_t column = (part.begin + step) * kSmallGemmStep;
  if (work.sharers == 1) {
    CopyBox(ring.Tokens(stage), map, column, part.first_token, ring.Full(stage));
    return;
  }
  const uint32_t share = Shape::kTokens / work.sharers;
  const uint32_t ranks = ((1u << work.sharers) - 1) << (part.split * work.sharers);
  CopyBoxToMany(ring.Tokens(stage) + part.sharer * share * kSmallGemmStep * 2, map, column,
                part.sharer * share, ring.Full(stage), static_cast<uint16_t>(ranks));
}

// One thread, after it has loaded the weights of the first stages.
template <typename Shape>
__device__ __forceinline__ void FillRing(const CUtensorMap* weight, const CUtensorMap* in,
                                         const SmallGemmWork& work, const SmallGemmPart& part,
                                         const SmallGemmRing<Shape>& ring) {
  WaitForEarlierKernels();
  uint32_t stage = 0;
  // Of the wait for an empty stage in this round; none in the first.
  uint32_t parity = 1;
  for (uint32_t step = 0; step < part.steps; ++step) {
    if (step >= Shape::kStages) {
      if (work.sharers == 1) {
        WaitForPhase(ring.Empty(stage), parity);
      } else {
        AwaitPhaseOfCluster(ring.Empty(stage), parity);
      }
      LoadWeights(weight, work, part, ring, step, stage);
    }
    LoadTokens(in, work, part, ring, step, stage);
    if (++stage == Shape::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// A warpgroup: its 64 weight rows times all tokens over the CTA's part of k.
template <typename Shape>
__device__ __forceinline__ void MultiplyRing(const SmallGemmWork& work, const SmallGemmPart& part,
                                             const SmallGemmRing<Shape>& ring,
                                             float (&sum)[Shape::kTokens / 2]) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t group = threadIdx.x / 128;
  uint32_t stage = 0;
  uint32_t parity = 0;
  for (uint32_t step = 0; step < part.steps; ++step) {
    WaitForPhase(ring.Full(stage), parity);
    const uint64_t a = Descriptor<kNoLeading>(ring.Weights(stage) + group * Shape::kGroupBytes);
    const uint64_t b = Descriptor<kNoLeading>(ring.Tokens(stage));
    ProductFence();
#pragma unroll
    for (uint32_t i = 0; i < kSmallGemmStep / 16; ++i) {
      WarpgroupMultiplyAdd(sum, a + i * kStepOfK, b + i * kStepOfK);
    }
    CommitProducts();
    // Memory is the limit: handing the stage back at once is worth more than overlapping products.
    WaitForProducts<0>();
    Pin(sum);
    if (work.sharers == 1) {
      if (lane == 0) Arrive(ring.Empty(stage));
    } else if (lane < work.sharers) {
      ArriveAt(ring.Empty(stage), part.split * work.sharers + lane);
    }
    if (++stage == Shape::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// [token][weight row] over the ring, which nobody reads any more.
template <typename Shape>
__device__ __forceinline__ void StoreSums(uint32_t to, const float (&sum)[Shape::kTokens / 2]) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t row = threadIdx.x / kWarp * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < Shape::kTokens / 2; ++i) {
    const uint32_t token = i / 4 * 8 + lane % 4 * 2 + i % 2;
    const uint32_t at = token * Shape::kSumStride + row + i % 4 / 2 * 8;
    StoreShared(to + at * 4, sum[i]);
  }
}

// Four neighbouring sums of the tile, over the splits in order.
__device__ __forceinline__ float4 SumOverSplits(const SmallGemmWork& work,
                                                const SmallGemmPart& part, uint32_t address) {
  float4 sum = LoadQuadFrom(address, part.sharer);
#pragma unroll 4
  for (uint32_t split = 1; split < work.splits; ++split) {
    const float4 x = LoadQuadFrom(address, split * work.sharers + part.sharer);
    sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
  }
  return sum;
}

__device__ __forceinline__ float GatedSilu(float gate, float up) {
  const float g = ToFloat(FromFloat<__nv_bfloat16>(gate));
  const float u = ToFloat(FromFloat<__nv_bfloat16>(up));
  return Activate<ActivationKind::kSilu>(g) * u;
}

// Each split finishes its share of the tile. Consumers only.
template <typename Shape>
__device__ __forceinline__ void FinishTile(const SmallGemmWork& work, const SmallGemmPart& part,
                                           uint32_t sums) {
  const uint32_t quads = work.tile_columns / kQuad;
  const uint32_t begin = part.split * Shape::kConsumers + threadIdx.x;
  for (uint32_t i = begin; i < part.rows * quads; i += work.splits * Shape::kConsumers) {
    const uint32_t row = i / quads;
    const uint32_t in_tile = i % quads * kQuad;
    const uint32_t column = part.column + in_tile;
    if (column >= work.columns) continue;
    const uint32_t token = part.token_of_row == nullptr ? row : __ldcg(part.token_of_row + row);
    const uint32_t address = sums + (token * Shape::kSumStride + in_tile) * 4;
    const size_t at = size_t{part.first_row + row} * work.out_stride + column;
    float4 y = SumOverSplits(work, part, address);
    if (work.epilogue == SmallGemmEpilogue::kGatedSilu) {
      const float4 up = SumOverSplits(work, part, address + kSmallGemmGroupRows * 4);
      y = {GatedSilu(y.x, up.x), GatedSilu(y.y, up.y), GatedSilu(y.z, up.z), GatedSilu(y.w, up.w)};
    }
    if (work.out_type == DType::kBfloat16) {
      StoreQuad(static_cast<__nv_bfloat16*>(work.out) + at, y);
      continue;
    }
    float* out = static_cast<float*>(work.out) + at;
    if (work.epilogue == SmallGemmEpilogue::kAccumulate) {
      const float4 x = LoadQuad(out);
      y = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
    }
    StoreQuad(out, y);
  }
}

// All of a CTA's work.
template <typename Shape>
__device__ __forceinline__ void RunSmallGemm(const CUtensorMap& weight, const CUtensorMap& in,
                                             const SmallGemmWork& work, const SmallGemmPart& part) {
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ uint64_t barriers[2 * Shape::kStages];
  constexpr uint32_t kMask = Shape::kAlignment - 1;
  const SmallGemmRing<Shape> ring{(SharedAddress(dynamic_shared) + kMask) & ~kMask,
                                  SharedAddress(barriers)};
  if (threadIdx.x == Shape::kConsumers) {
    PrefetchMap(&weight);
    PrefetchMap(&in);
    ring.Init(work.sharers);
    for (uint32_t step = 0; step < min(part.steps, Shape::kStages); ++step) {
      LoadWeights(&weight, work, part, ring, step, step);
    }
  }
  __syncthreads();
  // Sharers arrive at one another's barriers.
  if (work.sharers > 1) ClusterBarrier();
  AllowNextKernel();
  const bool consumer = threadIdx.x < Shape::kConsumers;
  if (consumer) {
    float sum[Shape::kTokens / 2] = {};
    MultiplyRing(work, part, ring, sum);
    // The other warpgroup may still multiply from where the sums go.
    NamedBarrier(1, Shape::kConsumers);
    StoreSums<Shape>(ring.data, sum);
  } else {
    if (threadIdx.x == Shape::kConsumers) FillRing(&weight, &in, work, part, ring);
    __syncwarp();
  }
  ClusterBarrier();
  WaitForEarlierKernels();
  if (consumer) FinishTile<Shape>(work, part, ring.data);
  // Nobody leaves while others read its sums.
  if (work.splits > 1) ClusterBarrier();
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    SmallGemmTiles(const __grid_constant__ CUtensorMap weight,
                   const __grid_constant__ CUtensorMap in, const SmallGemmWork work) {
  RunSmallGemm<Shape>(weight, in, work, SmallGemmPart::Of(work));
}

}  // namespace weft::kernels::cuda

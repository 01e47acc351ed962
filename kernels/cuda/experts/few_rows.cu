#include "kernels/cuda/experts/few_rows.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/elementwise/activate.cuh"
#include "kernels/cuda/experts/few_rows_route.cuh"
#include "kernels/cuda/experts/few_rows_work.cuh"
#include "kernels/cuda/gemm/gemv_multiply.cuh"
#include "kernels/cuda/gemm/gemv_output.cuh"
#include "kernels/cuda/gemm/gemv_stream.cuh"
#include "kernels/cuda/multiprocessors.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

using Slot = GemvSlot<kFewRowsElements>;

// The warp that requests the weights.
class FewRowsStream {
 public:
  // Up to `count` experts are taken; expert_of(i): the one of tile i.
  template <typename ExpertOf>
  __device__ __forceinline__ FewRowsStream(uint32_t count, const ExpertOf& expert_of)
      : policy_(EvictFirstPolicy()) {
    static_assert(kFewRowsPlacesMax == 2 * kWarp);
    const uint32_t lane = threadIdx.x % kWarp;
    if (lane < count) low_ = expert_of(lane);
    if (lane + kWarp < count) high_ = expert_of(lane + kWarp);
  }

  // All of a product's weights of the block, in the order in which they are used.
  template <typename Walk>
  __device__ __forceinline__ void Request(const FewRowsExpertsParams& params, uint32_t tiles,
                                          Slot& slot) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t k = Walk::K(params);
    Walk walk(params, tiles);
    FewRowsTile tile;
    while (walk.Next(&tile)) {
      const uint32_t expert = __shfl_sync(kAllLanes, tile.index < kWarp ? low_ : high_, tile.index);
      const bool has = walk.Has(tile, lane);
      const char* source =
          Walk::Matrix(params, expert) + size_t{has ? walk.Row(tile, lane) : 0} * k * 2;
#pragma unroll 1
      for (uint32_t begin = 0; begin < k; begin += kFewRowsElements) {
        const uint32_t bytes = min(kFewRowsElements, k - begin) * 2;
        WaitForPhase(slot.Empty(), slot.parity ^ 1);
        if (lane == 0) ArriveExpecting(slot.Full(), bytes * walk.Rows(tile));
        __syncwarp();
        if (has) {
          CopyBulkOnce(slot.Weights() + lane * FewRowsChunk::kRowBytes, source + size_t{begin} * 2,
                       bytes, slot.Full(), policy_);
        }
        slot.Advance();
      }
    }
  }

  // Until nobody reads the ring any more.
  static __device__ __forceinline__ void WaitForReaders(Slot& slot) {
    for (uint32_t i = 0; i < slot.slots; ++i) {
      WaitForPhase(slot.Empty(), slot.parity ^ 1);
      slot.Advance();
    }
  }

 private:
  uint64_t policy_;
  // The experts taken, a lane's two.
  uint32_t low_ = 0;
  uint32_t high_ = 0;
};

// The warps that multiply.
class FewRowsBlock {
 public:
  __device__ __forceinline__ FewRowsBlock(char* shared, const FewRowsTables& tables, uint32_t tiles,
                                          const FewRowsRing& ring, uint32_t first_barrier)
      : tables_(tables),
        tiles_(tiles),
        x_(reinterpret_cast<uint4*>(shared + ring.x_begin)),
        x_stride_(ring.x_stride),
        sums_(reinterpret_cast<float*>(shared + GemvShape::kSums)),
        multiplier_(SharedAddress(shared), ring.slots, first_barrier) {}

  // A product's input; a barrier has to follow.
  __device__ __forceinline__ void Fill(const void* in, uint32_t rows, uint32_t k) {
    const uint32_t vectors = k / GemvShape::kVector;
    for (uint32_t row = 0; row < rows; ++row) {
      const auto* from = static_cast<const uint4*>(in) + size_t{row} * vectors;
      for (uint32_t i = threadIdx.x; i < vectors; i += GemvShape::kThreads) {
        CopyAsync(SharedAddress(x_ + row * x_stride_ + i), from + i, 16);
      }
    }
    WaitForAllCopies();
  }

  __device__ __forceinline__ void Up(const FewRowsExpertsParams& params) {
    UpWalk walk(params, tiles_);
    FewRowsTile tile;
    uint32_t turn = 0;
    while (walk.Next(&tile)) {
      const uint32_t row = threadIdx.x % kWarp / 4;
      const bool takes = tables_.places[tile.index][row] != kNoPlace;
      multiplier_.ReadRow(takes ? x_ + row * x_stride_ : nullptr);
      GemvSums sums;
      multiplier_.AddPanel(params.hidden, 0, Chunks(params.hidden), &sums);
      const float* of_tile = Share(sums.even[0] + sums.odd[0], sums.even[1] + sums.odd[1],
                                   sums.even[2] + sums.odd[2], sums.even[3] + sums.odd[3], turn);
      turn ^= 1;
      StoreActivated(params, tile, of_tile);
    }
  }

  __device__ __forceinline__ void Down(const FewRowsExpertsParams& params) {
    DownWalk walk(params, tiles_);
    FewRowsTile tile;
    uint32_t turn = 0;
    float sums[4] = {};
    while (walk.Next(&tile)) {
      const uint32_t* places = tables_.places[tile.index];
      const uint32_t lane = threadIdx.x % kWarp;
      const uint32_t place = places[lane / 4];
      multiplier_.ReadRow(place != kNoPlace ? x_ + place * x_stride_ : nullptr);
      GemvSums of_expert;
      multiplier_.AddPanel(params.mlp, 0, Chunks(params.mlp), &of_expert);
      // The lane's sums are those of two rows (GemvElement). Selected, and not multiplied by zero:
      // what rows that do not take the expert must not see may be NaN.
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t at = places[lane % 4 * 2 + i % 2];
        if (at == kNoPlace) continue;
        sums[i] += tables_.weights[at] * (of_expert.even[i] + of_expert.odd[i]);
      }
      if (tile.index + 1 < tiles_) continue;
      const float* of_tile = Share(sums[0], sums[1], sums[2], sums[3], turn);
      turn ^= 1;
      StoreCombined(params, tile, of_tile);
      sums[0] = sums[1] = sums[2] = sums[3] = 0;
    }
  }

 private:
  static __device__ __forceinline__ uint32_t Chunks(uint32_t k) {
    return (k + kFewRowsElements - 1) / kFewRowsElements;
  }

  // Makes a thread's sums known to all; two buffers in turn, so that one barrier is enough.
  __device__ __forceinline__ const float* Share(float a, float b, float c, float d, uint32_t turn) {
    float* const to = sums_ + turn * GemvShape::kWarps * GemvShape::kTileSums;
    reinterpret_cast<float4*>(to)[threadIdx.x] = make_float4(a, b, c, d);
    GemvBarrier();
    return to;
  }

  static __device__ __forceinline__ float BiasOf(const void* biases, size_t at) {
    return ToFloat(static_cast<const __nv_bfloat16*>(biases)[at]);
  }

  __device__ __forceinline__ void StoreActivated(const FewRowsExpertsParams& params,
                                                 const FewRowsTile& tile, const float* sums) const {
    if (GemvElement::Tile() != 0 || GemvElement::Column() >= tile.count) return;
    const uint32_t place = tables_.places[tile.index][GemvElement::Row()];
    if (place == kNoPlace) return;
    const uint32_t column = tile.column + GemvElement::Column();
    float gate = GemvElement::Sum(sums);
    float up = GemvElement::PartnerSum(sums);
    if (params.gate_up_bias != nullptr) {
      const size_t at = size_t{tables_.experts[tile.index]} * 2 * params.mlp + column;
      gate += BiasOf(params.gate_up_bias, at);
      up += BiasOf(params.gate_up_bias, at + params.mlp);
    }
    gate = RoundToBfloat16(gate);
    up = RoundToBfloat16(up);
    const float value = params.activation == ActivationKind::kClampedSwiglu
                            ? ClampedSwiglu(gate, up, params.limit)
                            : Activate(params.activation, gate) * up;
    static_cast<__nv_bfloat16*>(params.made)[size_t{place} * params.mlp + column] =
        FromFloat<__nv_bfloat16>(value);
  }

  __device__ __forceinline__ void StoreCombined(const FewRowsExpertsParams& params,
                                                const FewRowsTile& tile, const float* sums) const {
    const uint32_t row = GemvElement::Row();
    if (GemvElement::Tile() != 0 || row >= params.rows || GemvElement::Column() >= tile.count) {
      return;
    }
    const uint32_t column = tile.column + GemvElement::Column();
    const size_t at = size_t{row} * params.hidden + column;
    float value = GemvElement::Sum(sums);
    for (uint32_t i = 0; params.down_bias != nullptr && i < tiles_; ++i) {
      const uint32_t place = tables_.places[i][row];
      if (place == kNoPlace) continue;
      value += tables_.weights[place] *
               BiasOf(params.down_bias, size_t{tables_.experts[i]} * params.hidden + column);
    }
    if (params.beside != nullptr) {
      value += ToFloat(__ldcg(static_cast<const __nv_bfloat16*>(params.beside) + at));
    }
    if (params.accumulates) {
      auto* out = static_cast<float*>(params.out) + at;
      *out = LoadWritten(static_cast<const float*>(out)) + value;
    } else {
      static_cast<__nv_bfloat16*>(params.out)[at] = FromFloat<__nv_bfloat16>(value);
    }
  }

  const FewRowsTables& tables_;
  const uint32_t tiles_;
  uint4* const x_;
  const uint32_t x_stride_;
  float* const sums_;
  GemvMultiplier<kFewRowsElements> multiplier_;
};

// By the warps that multiply, of all blocks: what they have stored is seen by all afterwards.
__device__ __forceinline__ void AwaitBlocks(uint32_t* counter) {
  GemvBarrier();
  if (threadIdx.x == 0) {
    CountUp(counter);
    AwaitCount(counter, gridDim.x);
  }
  GemvBarrier();
}

// The warp that requests the weights.
template <int kPerLane>
__device__ __forceinline__ void StreamBlock(const FewRowsExpertsParams& params,
                                            const FewRowsPlan& plan, uint32_t tiles,
                                            uint32_t shared, FewRowsTables* tables) {
  Slot up{shared, plan.up.slots};
  Slot down{shared, plan.down.slots, kFewRowsSlotsMax};
  const auto run = [&](FewRowsStream& stream) {
    stream.Request<UpWalk>(params, tiles, up);
    FewRowsStream::WaitForReaders(up);
    stream.Request<DownWalk>(params, tiles, down);
    PrefetchNext<kFewRowsElements>(params.next, plan.next);
  };
  if constexpr (kPerLane > 0) {
    RouteRow<kPerLane>(params, tables);
    SayRouted();
    FewRowsStream stream(tiles, [tables](uint32_t i) { return tables->experts[i]; });
    run(stream);
    LeaveRouting(params);
  } else {
    FewRowsStream stream(min(params.rows * params.per_token, params.experts),
                         [&params](uint32_t i) { return __ldcg(&params.routes.tiles[i].expert); });
    run(stream);
  }
}

// `kPerLane`: 0, or of one row that chooses its experts, experts a lane of the warp that does it.
template <int kPerLane>
__global__ void __launch_bounds__(GemvShape::kAllThreads, 1)
    MultiplyFewRows(const __grid_constant__ FewRowsExpertsParams params,
                    const __grid_constant__ FewRowsPlan plan) {
  extern __shared__ __align__(128) char shared[];
  __shared__ FewRowsTables tables;
  if (threadIdx.x == GemvShape::kThreads) {
    InitGemvBarriers(SharedAddress(shared), GemvShape::kSlotsMax);
  }
  if (threadIdx.x == 0) {
    *reinterpret_cast<uint4*>(shared + GemvShape::kZeros) = make_uint4(0, 0, 0, 0);
  }
  AllowNextKernel();
  __syncthreads();
  const uint32_t places = params.rows * params.per_token;
  if (threadIdx.x >= GemvShape::kThreads) {
    WaitForEarlierKernels();
    const uint32_t tiles = kPerLane > 0 ? places : __ldcg(params.routes.tile_count);
    StreamBlock<kPerLane>(params, plan, tiles, SharedAddress(shared), &tables);
    return;
  }
  uint32_t tiles = places;
  if constexpr (kPerLane > 0) {
    RowRouter router(params, reinterpret_cast<uint4*>(shared + plan.up.x_begin), shared);
    WaitForEarlierKernels();
    router.Run(params);
    AwaitRouted();
  } else {
    WaitForEarlierKernels();
    tiles = __ldcg(params.routes.tile_count);
  }
  FewRowsBlock up(shared, tables, tiles, plan.up, 0);
  if constexpr (kPerLane == 0) {
    up.Fill(params.in, params.rows, params.hidden);
    FillTables(params, tiles, &tables);
    GemvBarrier();
  }
  up.Up(params);
  auto* const counter = static_cast<uint32_t*>(params.workspace);
  AwaitBlocks(counter);
  FewRowsBlock down(shared, tables, tiles, plan.down, kFewRowsSlotsMax);
  down.Fill(params.made, places, params.mlp);
  GemvBarrier();
  down.Down(params);
  if (threadIdx.x == 0) LeaveCount(counter, gridDim.x, gridDim.x);
}

bool IsValid(const FewRowsExpertsParams& params) {
  if (params.per_token == 0 || params.hidden == 0 || params.mlp == 0 ||
      params.workspace == nullptr || !IsValidNext(params.next)) {
    return false;
  }
  const RouteParams& choice = params.router.choice;
  if (params.router.weight != nullptr &&
      (params.rows != 1 || params.router.numbers == nullptr || params.experts > kFewRowsRoutedMax ||
       !IsValidChoice(choice) || choice.experts != params.experts ||
       choice.per_token != params.per_token)) {
    return false;
  }
  return ServesFewRowsExperts(params.rows, params.per_token, params.hidden, params.mlp,
                              DType::kBfloat16);
}

using FewRowsKernel = void (*)(FewRowsExpertsParams, FewRowsPlan);

FewRowsKernel KernelFor(const FewRowsExpertsParams& params) {
  if (params.router.weight == nullptr) return MultiplyFewRows<0>;
  if (params.experts <= 64) return MultiplyFewRows<2>;
  return params.experts <= 128 ? MultiplyFewRows<4> : MultiplyFewRows<8>;
}

}  // namespace

bool ServesFewRowsExperts(uint32_t rows, uint32_t per_token, uint32_t hidden, uint32_t mlp,
                          DType type) {
  FewRowsPlan plan;
  const uint64_t places = uint64_t{rows} * per_token;
  return type == DType::kBfloat16 && rows <= kGemvRowsMax && places <= kFewRowsPlacesMax &&
         hidden % GemvShape::kVector == 0 && mlp % GemvShape::kVector == 0 &&
         plan.Make(rows, static_cast<uint32_t>(places), hidden, mlp);
}

cudaError_t FewRowsExperts(const FewRowsExpertsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  if (!IsValid(params)) return cudaErrorInvalidValue;
  uint32_t multiprocessors = 0;
  cudaError_t error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  FewRowsPlan plan;
  plan.Make(params.rows, params.rows * params.per_token, params.hidden, params.mlp);
  plan.next = GemvNextPlan::Of(params.next, /*claims=*/true, GemvTuning(), multiprocessors);
  const uint32_t shared_bytes = std::max(plan.up.end, plan.down.end);
  const FewRowsKernel kernel = KernelFor(params);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  return LaunchKernel(kernel, dim3(multiprocessors), GemvShape::kAllThreads, shared_bytes,
                      params.dependent, stream, params, plan);
}

}  // namespace weft::kernels::cuda

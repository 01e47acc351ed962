// How a single row chooses its experts within FewRowsExperts: the warps that multiply normalise the
// row, each block for itself, and compute the router's numbers, one or two a block; when all are
// there, the warp that requests the weights chooses, again in each block. Device code only.

#pragma once

#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/experts/few_rows_work.cuh"
#include "kernels/cuda/gemm/gemv_input.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"

namespace weft::kernels::cuda {

// Of the launch's workspace: blocks that have written their numbers.
__device__ __forceinline__ uint32_t* RoutedBlocks(void* workspace) {
  return static_cast<uint32_t*>(workspace) + 1;
}

// From the warp that chooses to those that multiply: the tables are filled. It does not wait for
// them; they wait for it, and for each other's part of the input. A warp says so as one, although
// its lanes had different shares of the tables.
__device__ __forceinline__ void SayRouted() {
  __syncwarp();
  NamedBarrierArrive(2, GemvShape::kAllThreads);
}
__device__ __forceinline__ void AwaitRouted() { NamedBarrier(2, GemvShape::kAllThreads); }

// Of the warps that multiply.
class RowRouter {
 public:
  // Before the wait for earlier kernels; reads nothing that they write. `x`: where the input
  // goes, in `shared`.
  __device__ __forceinline__ RowRouter(const FewRowsExpertsParams& params, uint4* x, char* shared)
      : norm_(Norm(params)),
        x_(x),
        sums_(reinterpret_cast<float*>(shared + GemvShape::kNormSums)),
        input_(norm_, x, /*stride=*/0, shared) {
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
      ahead_[i] = make_uint4(0, 0, 0, 0);
      if (blockIdx.x < params.experts && vector < Vectors(params)) {
        ahead_[i] = __ldg(Row(params, blockIdx.x) + vector);
      }
    }
  }

  // After it: the input, and the block's numbers, which others see that have awaited all blocks.
  // AwaitRouted has to follow.
  __device__ __forceinline__ void Run(const FewRowsExpertsParams& params) {
    // A thread multiplies the vectors that it has written itself: there is no barrier between.
    input_.FillFirst(norm_, GemvPanel(norm_));
    for (uint32_t expert = blockIdx.x; expert < params.experts; expert += gridDim.x) {
      float sum = WarpSum(Product(params, expert));
      if (threadIdx.x % kWarp == 0) sums_[threadIdx.x / kWarp] = sum;
      GemvBarrier();
      if (threadIdx.x == 0) {
        sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < GemvShape::kWarps; ++i) sum += sums_[i];
        if (params.router.bias != nullptr) {
          sum += ToFloat(static_cast<const __nv_bfloat16*>(params.router.bias)[expert]);
        }
        params.router.numbers[expert] = sum;
      }
      if (expert + gridDim.x < params.experts) GemvBarrier();
    }
    if (threadIdx.x == 0) CountUp(RoutedBlocks(params.workspace));
  }

 private:
  // Vectors that a thread has before the wait.
  static constexpr uint32_t kHeld = 2;

  static __device__ __forceinline__ GemvParams Norm(const FewRowsExpertsParams& params) {
    GemvParams norm;
    norm.rows = 1;
    norm.k = params.hidden;
    norm.residual_in = params.router.residual;
    norm.norm_weight = params.router.norm_weight;
    norm.epsilon = params.router.epsilon;
    return norm;
  }
  static __device__ __forceinline__ uint32_t Vectors(const FewRowsExpertsParams& params) {
    return params.hidden / GemvShape::kVector;
  }
  static __device__ __forceinline__ const uint4* Row(const FewRowsExpertsParams& params,
                                                     uint32_t expert) {
    return static_cast<const uint4*>(params.router.weight) + size_t{expert} * Vectors(params);
  }
  static __device__ __forceinline__ float Product(uint32_t x, uint32_t weight) {
    const float2 a = UnpackBfloat16(x);
    const float2 b = UnpackBfloat16(weight);
    return fmaf(a.x, b.x, a.y * b.y);
  }

  // Of the thread's vectors of an expert's row.
  __device__ __forceinline__ float Product(const FewRowsExpertsParams& params,
                                           uint32_t expert) const {
    const bool first = expert == blockIdx.x;
    const uint4* const row = Row(params, expert);
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
      if (vector >= Vectors(params)) break;
      sum += Product(x_[vector], first ? ahead_[i] : __ldg(row + vector));
    }
#pragma unroll 1
    for (uint32_t vector = threadIdx.x + kHeld * GemvShape::kThreads; vector < Vectors(params);
         vector += GemvShape::kThreads) {
      sum += Product(x_[vector], __ldg(row + vector));
    }
    return sum;
  }
  static __device__ __forceinline__ float Product(uint4 x, uint4 weight) {
    return (Product(x.x, weight.x) + Product(x.y, weight.y)) +
           (Product(x.z, weight.z) + Product(x.w, weight.w));
  }

  const GemvParams norm_;
  uint4* const x_;
  float* const sums_;
  GemvInput<1, /*kLayerNorm=*/false, kHeld> input_;
  uint4 ahead_[kHeld];
};

// By the warp that requests the weights, after the wait for earlier kernels: what a single row
// takes. SayRouted has to follow, and LeaveRouting some time.
template <int kPerLane>
__device__ __forceinline__ void RouteRow(const FewRowsExpertsParams& params,
                                         FewRowsTables* tables) {
  const uint32_t lane = threadIdx.x % kWarp;
  if (lane == 0) AwaitCount(RoutedBlocks(params.workspace), gridDim.x);
  __syncwarp();
  const float* const numbers = params.router.numbers;
  const RouteChoice choice = ChooseExperts<kPerLane>(
      params.router.choice, [numbers](uint32_t expert) { return __ldcg(numbers + expert); });
  if (lane >= params.per_token) return;
  tables->experts[choice.order] = choice.expert;
  tables->weights[choice.order] = choice.weight;
  for (uint32_t row = 0; row < kGemvRowsMax; ++row) {
    tables->places[choice.order][row] = row == 0 ? choice.order : kNoPlace;
  }
  if (blockIdx.x != 0) return;
  params.routes.row_of_place[choice.order] = 0;
  params.routes.expert_of_place[choice.order] = choice.expert;
}

__device__ __forceinline__ void LeaveRouting(const FewRowsExpertsParams& params) {
  if (threadIdx.x % kWarp != 0) return;
  LeaveCount(RoutedBlocks(params.workspace), gridDim.x, gridDim.x);
}

}  // namespace weft::kernels::cuda

#include "kernels/cuda/comm/all_reduce.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/comm/all_reduce_mail.cuh"
#include "kernels/cuda/comm/all_reduce_work.cuh"
#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/peer.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kWarpsMax = 16;
constexpr uint32_t kClusterMax = 8;
// Fewer warps to a CTA are not worth a larger cluster's barrier.
constexpr uint32_t kWarpsWanted = 8;
constexpr uint32_t kVectorsMax = kRowChunksMax / kWarpsMax;

// The only things touched before the earlier launch has ended, and only brought nearer: the step's
// weights have pushed them out of the L2 since the last call.
__device__ __forceinline__ void PrefetchForMeeting(const AllReduceParams& params) {
  if (threadIdx.x == 0) PrefetchToL2(&params.state->stopped);
  if (threadIdx.x == 1) PrefetchToL2(&params.state->calls[blockIdx.x]);
  if (threadIdx.x == 2) {
    PrefetchToL2(params.flags[params.rank] + blockIdx.x * kAllReduceRanksMax);
  }
}

// The end of a row whose sum is made: norm and residual. `sums`: the CTA's own of this row.
template <typename Part>
__device__ __forceinline__ void FinishRow(const AllReduceParams& params, const AllReducePlan& plan,
                                          const Part& part, uint32_t row, RowSums* sums) {
  if (params.weight != nullptr) {
    part.ShareSums(sums);
    if (plan.ctas > 1) {
      ClusterBarrier();
    } else {
      __syncthreads();
    }
    part.StoreNormed(row, *sums);
  }
  // Not earlier: the cluster's barrier would wait for these stores.
  part.StoreResidual(row);
}

// Cluster c of the grid takes rows c, c + clusters, ...; its CTAs share a row's chunks.
template <int kWorldMax, int kVectors, bool kLayerNorm>
__global__ void __launch_bounds__(kWarpsMax* kWarp)
    AllReduceRows(const __grid_constant__ AllReduceParams params,
                  const __grid_constant__ AllReducePlan plan) {
  // In turns: a CTA may be one row ahead of another of its cluster.
  __shared__ RowSums sums[2];
  AllowNextKernel();
  // Until this has been waited for, the other CTAs' shared memory may not be there yet.
  if (plan.ctas > 1) ClusterArrive();
  PrefetchForMeeting(params);
  WaitForEarlierKernels();

  Meeting meeting;
  const bool meets = threadIdx.x < kWarp;
  if (meets) meeting.Arrive(params);
  uint32_t row = blockIdx.x / plan.ctas;
  const uint32_t stride = gridDim.x / plan.ctas;
  RowPart<kWorldMax, kVectors, kLayerNorm> part(params, plan, blockIdx.x % plan.ctas);
  part.LoadWeight();
  part.LoadResidual(row);
  const bool met = __syncthreads_and(!meets || meeting.Await(params));
  if (plan.ctas > 1) ClusterWait();

  for (uint32_t turn = 0;; turn ^= 1) {
    if (met) part.AddPartials(row);
    FinishRow(params, plan, part, row, &sums[turn]);
    row += stride;
    if (row >= params.rows) break;
    part.LoadResidual(row);
  }
}

// Cluster c of the grid takes row c, each thread one vector.
template <int kWorldMax, bool kLayerNorm>
__global__ void __launch_bounds__(kWarpsMax* kWarp)
    AllReduceByMail(const __grid_constant__ AllReduceParams params,
                    const __grid_constant__ AllReducePlan plan) {
  __shared__ RowSums sums;
  AllowNextKernel();
  // As above.
  if (plan.ctas > 1) ClusterArrive();
  PrefetchForMeeting(params);
  const uint32_t row = blockIdx.x / plan.ctas;
  RowPart<kWorldMax, 1, kLayerNorm> part(params, plan, blockIdx.x % plan.ctas);
  part.LoadWeight();
  WaitForEarlierKernels();

  const uint32_t place = row * plan.vectors + part.VectorOf(0);
  const Mail<kWorldMax> mail(params, place);
  uint4 bits[kWorldMax] = {};
  bool met = true;
  if (part.Has(0)) {
    const auto* const own = static_cast<const uint4*>(params.partial[params.rank]);
    const uint4 mine = LoadFromPeer(own + place);
    mail.Send(params, mine);
    part.LoadResidual(row);
    met = mail.Receive(params, bits);
#pragma unroll
    for (uint32_t p = 0; p < kWorldMax; ++p) {
      if (p == params.rank) bits[p] = mine;
    }
  }
  met = __syncthreads_and(met);
  if (threadIdx.x == 0) mail.Count(params);
  if (plan.ctas > 1) ClusterWait();
  if (met) part.AddReceived(bits);
  FinishRow(params, plan, part, row, &sums);
}

struct Shape {
  AllReducePlan plan;
  uint32_t grid;
  uint32_t warps;
  // Of a thread.
  uint32_t vectors;
};

// Of rows, hidden and ctas_per_row alone, which are the same on all ranks.
Shape ShapeOf(const AllReduceParams& params) {
  Shape shape;
  AllReducePlan& plan = shape.plan;
  plan.vectors = params.hidden / kRowVector;
  plan.chunks = (plan.vectors + kWarp - 1) / kWarp;
  plan.ctas = params.ctas_per_row;
  if (plan.ctas == 0) {
    plan.ctas = 1;
    while (plan.ctas < kClusterMax && plan.chunks >= 2 * plan.ctas * kWarpsWanted &&
           params.rows <= kAllReduceCtasMax / (2 * plan.ctas)) {
      plan.ctas *= 2;
    }
  }
  shape.grid = plan.ctas * std::min(params.rows, kAllReduceCtasMax / plan.ctas);
  shape.warps = std::min(kWarpsMax, (plan.chunks + plan.ctas - 1) / plan.ctas);
  const uint32_t at_once = shape.warps * plan.ctas;
  shape.vectors = (plan.chunks + at_once - 1) / at_once;
  return shape;
}

using Kernel = void (*)(AllReduceParams, AllReducePlan);

cudaError_t Launch(Kernel kernel, const AllReduceParams& params, const Shape& shape,
                   cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  uint32_t count = 0;
  if (shape.plan.ctas > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = shape.plan.ctas;
    attributes[count].val.clusterDim.y = 1;
    attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (params.dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.grid);
  config.blockDim = dim3(shape.warps * kWarp);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, params, shape.plan);
  return error != cudaSuccess ? error : cudaGetLastError();
}

template <int kWorldMax, bool kLayerNorm>
Kernel KernelOf(const AllReduceParams& params, const Shape& shape) {
  const bool by_mail = params.mail[params.rank] != nullptr &&
                       AllReduceGoesByMail(params.world, params.rows, params.hidden);
  if (shape.vectors == 1) {
    return by_mail ? AllReduceByMail<kWorldMax, kLayerNorm>
                   : AllReduceRows<kWorldMax, 1, kLayerNorm>;
  }
  return shape.vectors == 2 ? AllReduceRows<kWorldMax, 2, kLayerNorm>
                            : AllReduceRows<kWorldMax, kVectorsMax, kLayerNorm>;
}

template <int kWorldMax>
Kernel KernelFor(const AllReduceParams& params, const Shape& shape) {
  return params.layer_norm ? KernelOf<kWorldMax, true>(params, shape)
                           : KernelOf<kWorldMax, false>(params, shape);
}

bool Aligned(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

bool IsValid(const AllReduceParams& params) {
  if (params.world == 0 || params.world > kAllReduceRanksMax || params.rank >= params.world ||
      params.hidden == 0 || params.hidden % kRowVector != 0 ||
      params.hidden > kAllReduceHiddenMax || params.ctas_per_row > kClusterMax ||
      (params.ctas_per_row & (params.ctas_per_row - 1)) != 0) {
    return false;
  }
  for (uint32_t p = 0; p < params.world; ++p) {
    if (!Aligned(params.partial[p]) || !Aligned(params.flags[p])) return false;
    if ((params.mail[p] == nullptr) != (params.mail[0] == nullptr)) return false;
  }
  if (params.weight != nullptr && (!Aligned(params.weight) || !Aligned(params.out))) return false;
  const bool is_layer_norm = params.layer_norm && params.weight != nullptr;
  if (params.bias != nullptr && (!is_layer_norm || !Aligned(params.bias))) return false;
  return params.state != nullptr && Aligned(params.residual);
}

}  // namespace

cudaError_t AllReduceAddNorm(const AllReduceParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  if (!IsValid(params)) return cudaErrorInvalidValue;
  const Shape shape = ShapeOf(params);
  const Kernel kernel = params.world <= 2   ? KernelFor<2>(params, shape)
                        : params.world <= 4 ? KernelFor<4>(params, shape)
                                            : KernelFor<8>(params, shape);
  return Launch(kernel, params, shape, stream);
}

}  // namespace weft::kernels::cuda

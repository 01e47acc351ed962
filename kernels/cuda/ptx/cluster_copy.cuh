// What keeps weights on the way to shared memory, beside tensor_copy.cuh: boxes of a matrix, and
// barriers and reads across the CTAs of a cluster. Device code only.

#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/tensor_copy.cuh"

namespace weft::kernels::cuda {

// What InitBarrier wrote is seen by the cluster's threads (after a barrier) and by copies.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
// At the same barrier of another CTA of the cluster, or the own.
__device__ __forceinline__ void ArriveAt(uint32_t barrier, uint32_t cluster_rank) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }" ::"r"(barrier),
      "r"(cluster_rank)
      : "memory");
}
// As WaitForPhase; also sees what other CTAs did before their ArriveAt.
__device__ __forceinline__ void AwaitPhaseOfCluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done; "
      "Again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1; "
      "@!done bra Again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The box of `map` that begins at (column, row); its bytes count at `barrier`. Read once, the data
// is the first that L2 may drop.
__device__ __forceinline__ void CopyBoxReadOnce(uint32_t to, const CUtensorMap* map,
                                                uint32_t column, uint32_t row, uint32_t barrier) {
  // createpolicy.fractional.L2::evict_first with all of the fraction.
  constexpr uint64_t kEvictFirst = 0x12f0000000000000;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(kEvictFirst)
      : "memory");
}
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap* map, uint32_t column,
                                        uint32_t row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// To the same place, counted at the same barrier, in every CTA of the cluster whose bit is set.
__device__ __forceinline__ void CopyBoxToMany(uint32_t to, const CUtensorMap* map, uint32_t column,
                                              uint32_t row, uint32_t barrier, uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(ranks)
      : "memory");
}

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// A barrier of all threads of the cluster: what was written before is seen after, across its CTAs.
__device__ __forceinline__ void ClusterBarrier() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// From the shared memory of a CTA of the cluster.
__device__ __forceinline__ float4 LoadQuadFrom(uint32_t address, uint32_t cluster_rank) {
  float4 out;
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %4, %5; "
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote]; }"
      : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w)
      : "r"(address), "r"(cluster_rank)
      : "memory");
  return out;
}

}  // namespace weft::kernels::cuda

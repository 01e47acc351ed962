// Thread-block clusters: the barrier of all threads, and the neighbours' shared memory. Device code
// only.

#pragma once

#include <cstdint>

namespace weft::kernels::cuda {

// All threads of all blocks of the cluster, by turns. What a thread wrote before Arrive is seen
// after Wait. A block must not end while others may still read its shared memory.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Address of `local`'s counterpart in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ uint32_t ClusterAddress(const void* local, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(local))), "r"(rank));
  return address;
}
// Eight bytes, 8-byte aligned.
__device__ __forceinline__ uint2 ClusterLoad(const void* local, uint32_t rank) {
  uint2 out;
  asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];"
               : "=r"(out.x), "=r"(out.y)
               : "r"(ClusterAddress(local, rank))
               : "memory");
  return out;
}

// Into the same variable of another CTA of the cluster, or the own; `address` is of shared memory.
__device__ __forceinline__ void StoreToCluster(uint32_t address, uint32_t cta, float value) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
      "st.shared::cluster.f32 [remote], %2; }" ::"r"(address),
      "r"(cta), "f"(value)
      : "memory");
}

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// A barrier of all threads of the cluster: what was written before is seen after, across its CTAs.
__device__ __forceinline__ void ClusterBarrier() {
  ClusterArrive();
  ClusterWait();
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

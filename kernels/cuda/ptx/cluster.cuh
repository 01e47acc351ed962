// Thread-block clusters: the barrier in two halves and reads of the neighbours' shared memory.
// Device code only.

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

}  // namespace weft::kernels::cuda

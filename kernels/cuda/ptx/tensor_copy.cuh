// The copy engine (TMA): boxes of a tensor map and runs of bytes on their way to shared memory,
// which signal a barrier (barrier.cuh) when they have landed. By one thread each. Device code only.

#pragma once

#include <cuda.h>

#include <cstdint>

namespace weft::kernels::cuda {

__device__ __forceinline__ void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// A box of the map at (x, y, z), x the fastest, to `to`, which is 1024-byte aligned where the map
// swizzles by 128 bytes. By one thread.
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap* map, uint32_t x, uint32_t y,
                                        uint32_t z, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
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

// For CopyBulkOnce: all lines are the first that the L2 may drop.
__device__ __forceinline__ uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Read once: the first that the L2 may drop. Addresses and size are multiples of 16.
__device__ __forceinline__ void CopyBulkOnce(uint32_t to, const void* from, uint32_t bytes,
                                             uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void PrefetchBulk(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace weft::kernels::cuda

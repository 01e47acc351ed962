// Barriers: those in shared memory that threads and copies arrive at (mbarrier), and those of some
// of a CTA's threads by number. Device code only.
//
// The phase of a barrier in shared memory ends when its arrivals have come and the bytes it was
// told to expect have landed; phases are waited for by parity. A fresh barrier is in phase 0:
// waiting for parity 0 waits for the end of its first phase, waiting for parity 1 passes at once.

#pragma once

#include <cstdint>

namespace weft::kernels::cuda {

// By one thread; then FenceBarriers by it and __syncthreads, before anybody uses them.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and makes the phase wait for so many bytes of copies too.
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void WaitForPhase(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

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

// A barrier of its own for `threads` threads; id 0 is __syncthreads.
__device__ __forceinline__ void NamedBarrier(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Named barriers as bar.sync: this thread only says that it came.
__device__ __forceinline__ void NamedBarrierArrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// This thread's stores to shared memory, before what copies and tensor cores do with it after a
// barrier.
__device__ __forceinline__ void FenceSharedForAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace weft::kernels::cuda

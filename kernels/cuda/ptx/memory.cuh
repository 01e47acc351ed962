// Loads, stores and copies with a word about caches or order that C++ has no way to say, in the
// memory of this GPU; other GPUs' is in peer.cuh. Device code only.

#pragma once

#include <cstdint>

namespace weft::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void StoreShared(uint32_t to, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ void StoreShared(uint32_t to, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void StoreShared(uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
__device__ __forceinline__ uint4 LoadShared(uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}

// Sixteen bytes, of which only the first `bytes` (0 or 16) are read and the rest become zero.
__device__ __forceinline__ void CopyAsync(uint32_t to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kPending of the thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Until all of the thread's copies are done, in groups or not; others' are seen after a barrier.
__device__ __forceinline__ void WaitForAllCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// What earlier kernels wrote: past the L1, which may hold lines from before they did, and never
// moved ahead of the wait for them.
__device__ __forceinline__ uint4 LoadWritten(const void* from) {
  uint4 out;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from)
               : "memory");
  return out;
}
__device__ __forceinline__ float LoadWritten(const float* from) {
  float out;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(out) : "l"(from) : "memory");
  return out;
}

// Into the L2, where other multiprocessors' writes go as well: nothing stale comes of it.
__device__ __forceinline__ void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Adds one and returns what was there before: what this thread has seen done comes before it, and
// what those before it had seen is seen after.
__device__ __forceinline__ uint32_t CountUp(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

// What was done before a CountUp of this value is seen after it.
__device__ __forceinline__ uint32_t LoadCounter(const uint32_t* counter) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

// Waits until the counter has been counted up `count` times.
__device__ __forceinline__ void AwaitCount(const uint32_t* counter, uint32_t count) {
  while (LoadCounter(counter) < count) {
  }
}

// After AwaitCount of a counter that began at zero, by one thread of each of the `waiting` blocks:
// the last of them leaves the counter at zero again. Apart from waiting, since it takes as long as
// another round trip to the L2.
__device__ __forceinline__ void LeaveCount(uint32_t* counter, uint32_t count, uint32_t waiting) {
  if (CountUp(counter) + 1 == count + waiting) *counter = 0;
}

// Makes the compiler forget what it knows of x: what follows from x is worked out again where this
// stands, and does not wait for it in registers.
template <typename T>
__device__ __forceinline__ void Forget(T& x) {
  static_assert(sizeof(T) == 4);
  asm volatile("" : "+r"(x));
}

}  // namespace weft::kernels::cuda

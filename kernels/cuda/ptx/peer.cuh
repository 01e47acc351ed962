// Words and rows that several GPUs write and read at the same time. Device code only.
//
// What the loads and stores promise. A partial sum is written by an ordinary store of an earlier
// kernel; that kernel's end puts it in front of everything in the kernel after it. There one thread
// stores a flag with release at system scope: whatever is in front of it is seen by whoever
// acquires the flag, on any GPU. The other GPU's thread loads the flag with acquire at system
// scope, which also drops what its multiprocessor's L1 holds; a CTA barrier then carries the order
// to its fellow threads. Rows of other GPUs are loaded with ld.relaxed.sys: such loads are served
// where the memory lives, never from an L1 line of an earlier call on the same buffer.
//
// Mail needs no order: data and the number that says it is there are one word of 64 bits, and each
// such word of a vector access is stored and seen as a whole.

#pragma once

#include <cstdint>

namespace weft::kernels::cuda {

// Everything the thread has seen done is seen by whoever then acquires this word.
__device__ __forceinline__ void StoreRelease(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t out;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(out) : "l"(from) : "memory");
  return out;
}

// Without order; not from the L1. Host memory and words that another CTA changes.
__device__ __forceinline__ uint32_t LoadWord(const uint32_t* from) {
  uint32_t out;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(out) : "l"(from) : "memory");
  return out;
}
__device__ __forceinline__ void StoreWord(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// 16 bytes of a row that another GPU wrote, or has.
__device__ __forceinline__ uint4 LoadFromPeer(const void* from) {
  uint4 out;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from)
               : "memory");
  return out;
}

// Two words into another GPU's memory, and as they are at the moment in the own.
__device__ __forceinline__ void StoreMail(void* to, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
               : "memory");
}
__device__ __forceinline__ ulonglong2 LoadMail(const void* from) {
  ulonglong2 out;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(out.x), "=l"(out.y)
               : "l"(from)
               : "memory");
  return out;
}

__device__ __forceinline__ uint64_t Nanoseconds() {
  uint64_t out;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out));
  return out;
}

}  // namespace weft::kernels::cuda

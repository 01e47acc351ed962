// The warp-level instructions of prompt attention: asynchronous copies to shared memory, matrix
// fragments and bf16 products. Device code only.
//
// Fragments of a 16 x 8 product (PTX, mma.m16n8k16): lane l holds, of the accumulator, columns
// 2 * (l % 4) and + 1 of row l / 4 in [0], [1] and of row l / 4 + 8 in [2], [3].

#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace weft::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes, or writes 16 zero bytes and reads nothing. Passes the L1.
__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from, bool valid) {
  const uint32_t bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
// Waits for all copies of this thread; others' become visible by a barrier after it.
__device__ __forceinline__ void WaitCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void LoadMatrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// sum += a (16 x 16) * b (16 x 8, given as its two registers).
__device__ __forceinline__ void MultiplyAdd(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two bf16, `low` in the low half; rounds to nearest even.
__device__ __forceinline__ uint32_t PackBfloat16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// 2^x, error below 2^-22 of the result; 0 for minus infinity.
__device__ __forceinline__ float Exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

}  // namespace weft::kernels::cuda

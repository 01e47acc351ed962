// The 16 x 8 x 16 bf16 product of a warp, loads of its operands from shared memory, and the
// hardware's power of two. Device code only.

#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace weft::kernels::cuda {

// Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void LoadMatrices(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// sum += a * b. Lane l holds of the sum rows l / 4 (elements 0, 1) and l / 4 + 8 (2, 3), columns
// l % 4 * 2 and the next.
__device__ __forceinline__ void MultiplyAdd(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two bf16, `low` in the low half; rounds to nearest even.
__device__ __forceinline__ uint32_t PackBfloat16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// 2^x by the hardware's instruction: error below 2^-22 of the result; 0 for -infinity.
__device__ __forceinline__ float Exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// Factor that takes a sum made under maximum `from` to maximum `to` >= from (in powers of two). An
// empty sum has maximum -infinity.
__device__ __forceinline__ float Rescale(float from, float to) {
  return from == to ? 1.0f : Exp2(from - to);
}

}  // namespace weft::kernels::cuda

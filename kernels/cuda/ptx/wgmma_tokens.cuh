// The warpgroup's matrix product of sm_90a: 64 weight rows by kTokens tokens by 16 of k, both
// operands in shared memory under the 128-byte swizzle. Device code only.

#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/wgmma.cuh"

namespace weft::kernels::cuda {

// Sixteen further along k, in a descriptor.
inline constexpr uint64_t kStepOfK = DescriptorOffset(32);

// sum += a * b. Lane l of warp w of the warpgroup holds of the sum, in elements 4 i to 4 i + 3,
// weight rows 16 w + l / 4 (0, 1) and 8 more (2, 3), tokens 8 i + l % 4 * 2 and the next.
__device__ __forceinline__ void WarpgroupMultiplyAdd(float (&sum)[4], uint64_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3}, "
      "%4, %5, accumulate, 1, 1, 0, 0; }"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void WarpgroupMultiplyAdd(float (&sum)[8], uint64_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, accumulate, 1, 1, 0, 0; }"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void WarpgroupMultiplyAdd(float (&sum)[12], uint64_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11}, "
      "%12, %13, accumulate, 1, 1, 0, 0; }"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void WarpgroupMultiplyAdd(float (&sum)[16], uint64_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, accumulate, 1, 1, 0, 0; }"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void WarpgroupMultiplyAdd(float (&sum)[24], uint64_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23}, "
      "%24, %25, accumulate, 1, 1, 0, 0; }"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
        "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void WarpgroupMultiplyAdd(float (&sum)[32], uint64_t a, uint64_t b) {
  MultiplyShared<true>(sum, a, b);
}

}  // namespace weft::kernels::cuda

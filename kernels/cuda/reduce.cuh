// Sums and maxima over a warp and a block, in an order that depends on the block's size alone.
// Device code only.

#pragma once

namespace weft::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
  }
  return x;
}

// Every thread gets the sum over the block. `scratch` holds one float a warp; the block must not
// use it again before its next barrier. Threads: a multiple of 32, at most 1024.
__device__ __forceinline__ float BlockSum(float x, float* scratch) {
  const int lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  x = WarpSum(x);
  if (lane == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  return WarpSum(lane < warps ? scratch[lane] : 0.0f);
}

}  // namespace weft::kernels::cuda

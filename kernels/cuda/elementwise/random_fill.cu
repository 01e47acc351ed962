#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/random_fill.h"
#include "kernels/cuda/vector.cuh"
#include "kernels/random_weight.h"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// One block a row; a thread takes every kThreads-th 16 bytes of it.
template <typename T>
__global__ void __launch_bounds__(kThreads) FillRow(RandomFillParams params) {
  constexpr uint32_t kSize = Vector<T>::kSize;
  const PaddedGrid& grid = params.grid;
  const uint32_t row = blockIdx.x;
  const uint32_t row_bits = RandomWeightRow(params.key, row);
  const size_t memory_row =
      size_t{row / grid.row_group} * grid.row_group_stride + row % grid.row_group;
  T* out = static_cast<T*>(params.out) + memory_row * grid.stride;
  for (uint32_t at = threadIdx.x * kSize; at < grid.stride; at += kThreads * kSize) {
    // Groups begin at multiples of a vector, so that a vector lies in one group.
    const uint32_t group = at / grid.column_group_stride;
    const uint32_t in_group = at - group * grid.column_group_stride;
    const uint32_t column = group * grid.column_group + in_group;
    if (in_group >= grid.column_group || column >= grid.columns) continue;
    const uint32_t left = min(grid.column_group - in_group, grid.columns - column);
    Vector<T> values;
#pragma unroll
    for (uint32_t i = 0; i < kSize; ++i) {
      values.at[i] = FromFloat<T>(RandomWeight(row_bits, column + i));
    }
    if (left >= kSize) {
      Store(out + at, values);
      continue;
    }
#pragma unroll
    for (uint32_t i = 0; i < kSize; ++i) {
      if (i < left) out[at + i] = values.at[i];
    }
  }
}

}  // namespace

cudaError_t RandomFill(const RandomFillParams& params, cudaStream_t stream) {
  if (params.grid.rows == 0 || params.grid.columns == 0) return cudaSuccess;
  if (params.type == DType::kFloat32) {
    FillRow<float><<<params.grid.rows, kThreads, 0, stream>>>(params);
  } else {
    FillRow<__nv_bfloat16><<<params.grid.rows, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda

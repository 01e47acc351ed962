// Fills a matrix in device memory with small random numbers (kernels/random_weight.h), for models
// whose weights do not matter. Rows and columns may lie in groups with padding between them, which
// is not touched. Moves, per element: one element written.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

// Where the elements of a row-major matrix lie in memory: row r in memory row
// r / row_group * row_group_stride + r % row_group, its columns likewise inside it.
struct PaddedGrid {
  uint32_t rows = 0;
  uint32_t columns = 0;
  // Elements from one memory row to the next.
  uint32_t stride = 0;
  uint32_t row_group = 1;
  uint32_t row_group_stride = 1;
  uint32_t column_group = 1;
  uint32_t column_group_stride = 1;
};

struct RandomFillParams {
  // Memory row 0, 16-byte aligned.
  void* out = nullptr;
  // stride and column_group_stride are multiples of 8.
  PaddedGrid grid;
  // Of RandomWeightRow.
  uint64_t key = 0;
  DType type = DType::kBfloat16;
};

cudaError_t RandomFill(const RandomFillParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

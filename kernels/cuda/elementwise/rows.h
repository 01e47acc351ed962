// Small moves around the rows of a step:
//
//   GatherRows:        out[i] = in[source[i]], whole rows
//   AddBias:           rows[r, i] += bias[i]
//   AddToResidual:     residual[i] += delta[i]
//   RoundElements:     out[i] = in[i], rounded to the type of `out`
//   CapLogits:         x[i] = cap * tanh(x[i] / cap)
//   UnpackBlockTables: out[s, j] = ids[begin[s] + j] for j < begin[s + 1] - begin[s]
//   JoinSlices:        out[r, column_begin[p] + j] = slices[p, r, j]
//
// The last makes the block tables that attention reads, one row a sequence at a fixed stride, from
// the packed ones that the host sends; the rest of a row of `out` stays what it was. Moves each
// element in and out once. GatherRows wants row_bytes a multiple of 16 and 16-byte aligned rows.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

struct GatherRowsParams {
  // Rows row_bytes long, in_stride_bytes apart.
  const void* in = nullptr;
  uint64_t in_stride_bytes = 0;
  // [rows], or null for rows 0, 1, 2 ...
  const uint32_t* source = nullptr;
  // [rows, row_bytes], contiguous, apart from `in`.
  void* out = nullptr;
  uint32_t rows = 0;
  uint32_t row_bytes = 0;
};

struct AddBiasParams {
  // [rows, columns] of `type`, contiguous.
  void* rows = nullptr;
  // [columns] of `bias_type`.
  const void* bias = nullptr;
  uint32_t row_count = 0;
  uint32_t columns = 0;
  DType type = DType::kFloat32;
  DType bias_type = DType::kBfloat16;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

struct AddToResidualParams {
  // [count] float32.
  float* residual = nullptr;
  // [count] of `type`.
  const void* delta = nullptr;
  uint64_t count = 0;
  DType type = DType::kBfloat16;
  bool dependent = false;
};

struct RoundElementsParams {
  // [count] float32.
  const float* in = nullptr;
  // [count] of `type`, apart from `in`.
  void* out = nullptr;
  uint64_t count = 0;
  DType type = DType::kBfloat16;
  bool dependent = false;
};

struct CapLogitsParams {
  // [count] float32.
  float* logits = nullptr;
  uint64_t count = 0;
  float cap = 0;
};

struct UnpackBlockTablesParams {
  const uint32_t* ids = nullptr;
  // [sequences + 1].
  const uint32_t* begin = nullptr;
  uint32_t sequences = 0;
  // [sequences, stride]; stride is at least what any sequence has.
  uint32_t* out = nullptr;
  uint32_t stride = 0;
};

// Slices of rows, as an all-gather leaves them, to whole rows.
struct JoinSlicesParams {
  // [parts, rows, slice_stride] float32.
  const float* slices = nullptr;
  uint32_t slice_stride = 0;
  // [parts + 1]: slice p has column_begin[p + 1] - column_begin[p] columns.
  const uint32_t* column_begin = nullptr;
  uint32_t parts = 0;
  uint32_t rows = 0;
  // [rows, out_stride], apart from `slices`.
  float* out = nullptr;
  uint64_t out_stride = 0;
};

cudaError_t GatherRows(const GatherRowsParams& params, cudaStream_t stream);
cudaError_t AddBias(const AddBiasParams& params, cudaStream_t stream);
cudaError_t AddToResidual(const AddToResidualParams& params, cudaStream_t stream);
cudaError_t RoundElements(const RoundElementsParams& params, cudaStream_t stream);
cudaError_t CapLogits(const CapLogitsParams& params, cudaStream_t stream);
cudaError_t UnpackBlockTables(const UnpackBlockTablesParams& params, cudaStream_t stream);
cudaError_t JoinSlices(const JoinSlicesParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

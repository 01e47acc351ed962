// The rows of a step on their way to experts and back:
//
//   SpreadRows:  out[p] = in[row_of_place[p]]
//   ScaleRows:   rows[r] *= sigmoid(sum over i of in[r, i] * weight[i])
//   CombineRows: out[r] = beside[r] + sum over c of weights[r, c] * made[places[r, c]]
//
// the sum in the order of c, in float32, rounded once: a row's bits depend on nothing but its own
// inputs. Moves each row of `made` in once; all pointers 16-byte aligned, `hidden` a multiple of 8.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

struct SpreadRowsParams {
  // [rows, hidden] and [places, hidden] of `type`.
  const void* in = nullptr;
  void* out = nullptr;
  // [places] (route.h).
  const uint32_t* row_of_place = nullptr;
  uint32_t places = 0;
  uint32_t hidden = 0;
  DType type = DType::kBfloat16;
  bool dependent = false;
};

struct ScaleRowsParams {
  // [rows, hidden] of `type` each.
  const void* in = nullptr;
  void* rows = nullptr;
  // [hidden] of `type`.
  const void* weight = nullptr;
  uint32_t row_count = 0;
  uint32_t hidden = 0;
  DType type = DType::kBfloat16;
  bool dependent = false;
};

struct CombineRowsParams {
  // [rows * per_token, hidden] of `type`.
  const void* made = nullptr;
  // [rows, hidden] of `type`, or null for zeros; may be `out`.
  const void* beside = nullptr;
  // [rows, per_token] each (route.h).
  const float* weights = nullptr;
  const uint32_t* places = nullptr;
  // [rows, hidden]: of `type`, stored; or float32, added to.
  void* out = nullptr;
  bool accumulates = false;
  uint32_t rows = 0;
  uint32_t per_token = 0;
  uint32_t hidden = 0;
  DType type = DType::kBfloat16;
  bool dependent = false;
};

cudaError_t SpreadRows(const SpreadRowsParams& params, cudaStream_t stream);
cudaError_t ScaleRows(const ScaleRowsParams& params, cudaStream_t stream);
cudaError_t CombineRows(const CombineRowsParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

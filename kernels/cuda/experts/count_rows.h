// How many rows each expert gets, added up over steps, for those who ask for it: integer atomics
// behind the routing (route.h), so that sums do not depend on an order. Rows of padding do not
// count. Reads 8 bytes a place.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

struct CountExpertRowsParams {
  // [places] each: row and expert of each place.
  const uint32_t* row_of_place = nullptr;
  const uint32_t* expert_of_place = nullptr;
  uint32_t places = 0;
  // [rows]: kNoSequence (kernels/cuda/kv.h) in padding; null where no row is.
  const uint32_t* row_sequences = nullptr;
  // Nothing is counted while it is 0. In device memory, so that captured graphs heed it.
  const uint32_t* counting = nullptr;
  // [experts], added to.
  uint64_t* counts = nullptr;
  bool dependent = false;
};

cudaError_t CountExpertRows(const CountExpertRowsParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

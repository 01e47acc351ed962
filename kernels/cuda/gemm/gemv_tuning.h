// What of Gemv can be set for measurements. The product calls Gemv, which takes the defaults.

#pragma once

#include "kernels/cuda/gemm/gemv.h"

namespace weft::kernels::cuda {

struct GemvTuning {
  // Elements of k that a copy of a row of the weight brings: 512 or 1024. The order of sums
  // depends on it.
  uint32_t chunk = 1024;
  // Shared memory of a block, at most. Up to 113 KB two fit on a multiprocessor, so that the next
  // launch's block starts as soon as this one runs.
  uint32_t shared_bytes = 227 * 1024;
  // Chunks of sixteen rows of the next product's weight that a block has brought into the L2.
  uint32_t chunks_ahead = 2;
  // With a workspace: the columns that blocks claim as they go, and how many rows of the weight a
  // block must have on average for that.
  uint32_t claimed_percent = 10;
  uint32_t claiming_rows = 128;
};

cudaError_t GemvTuned(const GemvParams& params, const GemvTuning& tuning, cudaStream_t stream);

}  // namespace weft::kernels::cuda

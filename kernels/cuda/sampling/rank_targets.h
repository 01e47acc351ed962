// The rank of one token in each row of logits: 1 + how many tokens go before it, which are the more
// likely ones and as likely ones of lower ids. A block a row, one pass over the row; bound by
// reading the logits, which the sampler has just brought into the L2 cache.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

struct RankTargetsParams {
  // [rows, vocabulary], rows row_stride elements apart.
  const float* logits = nullptr;
  uint64_t row_stride = 0;
  uint32_t rows = 0;
  uint32_t vocabulary = 0;
  // [rows], each below the vocabulary.
  const uint32_t* targets = nullptr;
  // [rows]. Means nothing where a row holds NaN.
  uint32_t* out_ranks = nullptr;
};

cudaError_t RankTargets(const RankTargetsParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

// Rows of the embedding table into the residual, float32:
//
//   residual[row] = scale * table[id - vocab_begin] + position_table[positions[row]]
//
// or, with `adds_positions`, only the second part of it, added to what the residual is:
//
//   residual[row] += position_table[positions[row]]
//
// with zero in the place of the token's row when the id lies outside [vocab_begin, vocab_end): each
// rank holds a slice of the vocabulary, and the ranks' residuals are summed afterwards. Ids are
// read from device memory, those of decoding rows from where the sampler left them. A row's numbers
// do not depend on its neighbours. Moves, per element: the table's and the position table's element
// and 4 bytes of residual. Any hidden size; multiples of four take vector accesses.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

// An id that stands for the last token sampled in the row's slot.
inline constexpr uint32_t kTakeLastSample = 0xffffffffu;

struct EmbedParams {
  // [rows]; ids that no rank holds give zeros.
  const uint32_t* ids = nullptr;
  // [rows] and [slots]: a row with kTakeLastSample takes last_sampled[slot[row]]. Read for such
  // rows only.
  const uint32_t* slot = nullptr;
  const uint32_t* last_sampled = nullptr;
  // [vocab_end - vocab_begin, hidden], 16-byte aligned.
  const void* table = nullptr;
  uint32_t vocab_begin = 0;
  uint32_t vocab_end = 0;
  // [positions, hidden], 16-byte aligned, or null. Added to every row, also to those whose id
  // another rank holds: give it to one rank only.
  const void* position_table = nullptr;
  // [rows]; read with a position table only.
  const uint32_t* positions = nullptr;
  // Takes position_table and positions alone; ids and table are not read.
  bool adds_positions = false;
  // Of the token's row, not of the position's.
  float scale = 1;
  // [rows, hidden], 16-byte aligned.
  float* residual = nullptr;
  uint32_t rows = 0;
  uint32_t hidden = 0;
  // Of the tables.
  DType type = DType::kBfloat16;
};

cudaError_t Embed(const EmbedParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

// Which part of each parameter a rank holds under tensor parallelism. Pure arithmetic, the same on
// every rank; the one place that knows how heads, MLP columns and the vocabulary are split.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// A half-open range.
struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
};

struct SlicePlan {
  Rank rank = 0;
  uint32_t world = 1;
  // Query heads of this rank; contiguous, sizes differ by at most one.
  Range heads;
  // KV heads that those query heads use; one at a boundary lives on both ranks.
  Range kv_heads;
  // For each query head of this rank: index into kv_heads, from 0.
  std::vector<uint32_t> kv_head_of;
  // Columns of the MLP's hidden layer, cut at multiples of mlp_multiple.
  Range mlp;
  // The same of the MLP beside experts that all tokens take, and of every expert; empty without.
  Range shared;
  Range expert;
  // Rows of embedding and head.
  Range vocab;
};

// The slice of `rank`. `mlp_multiple` is the block of the down projection's format, or 1.
// INVALID_ARGUMENT, saying which counts would work, when world exceeds the query heads or the MLP
// blocks.
absl::StatusOr<SlicePlan> MakeSlicePlan(const DecoderSpec& spec, Rank rank, uint32_t world,
                                        uint32_t mlp_multiple);

// The part of one parameter that a rank holds: rows and columns, half-open. A vector has one
// column.
struct TensorSlice {
  uint64_t row_begin = 0;
  uint64_t row_end = 0;
  uint64_t column_begin = 0;
  uint64_t column_end = 0;
  uint64_t rows() const { return row_end - row_begin; }
  uint64_t columns() const { return column_end - column_begin; }
};
TensorSlice SliceOf(const DecoderParam& param, const DecoderSpec& spec, const SlicePlan& plan);

}  // namespace weft::shard

// Attention of prompt chunks over the paged KV cache, ragged: sequence s has the rows
// row_begin[s] .. row_begin[s + 1] - 1 of query and out (none is allowed), and its last row is at
// position context_lengths[s] - 1. Causal always; keys and values of all positions, this chunk's
// included, are read from the cache. Scores and masks as kernels/cuda/attention/attention.h says.
//
// A work list in device memory, made once a step by PlanPromptAttention and used by all layers,
// names the tiles of kPromptTileRows rows, longest first; there is one item of work for each query
// head and entry of the list. The grid has a block for each item, or, by warpgroup products, at
// most one for each multiprocessor, and these take items from the list in order; so nothing but
// maxima is known on the host. Memory read: query and output once, keys and values once a tile and
// KV head (the query heads of a group run next to each other and share them in L2). A row's numbers
// do not depend on how its prompt was cut into chunks, nor on other sequences.
//
// Limits: scale > 0; head_dim a multiple of 8 up to 256; query 16-byte aligned with query_stride a
// multiple of 8 elements; positions below 2^31; at most 65,535 tiles. bf16 queries over a bf16
// cache with head_dim 64, 80, 96, 128 or 256 run on the tensor cores, those of 64, 128 and 256 by
// warpgroup products where the caller gives the layer's tensor maps; everything else takes a plain
// kernel.

#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/kv_tensor_map.h"

namespace weft::kernels::cuda {

// Rows of one sequence that a block works on, for one query head.
inline constexpr uint32_t kPromptTileRows = 128;

// Rows first_row .. first_row + kPromptTileRows - 1 of a sequence's own, as far as it has them.
struct PromptTile {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t sequence;  // kNone: nothing to do.
  uint32_t first_row;
};

// Counters in device memory that a step's launches share.
inline constexpr uint32_t kPromptCounters = 2;

struct PromptAttentionParams {
  AttentionParams attention;
  // [attention.sequences + 1]; rows before the first and after the last are not touched.
  const uint32_t* row_begin = nullptr;
  // At least row_begin[sequences] - row_begin[0].
  uint32_t rows_max = 0;
  // [PromptTilesMax(rows_max, attention.sequences)], written by PlanPromptAttention.
  PromptTile* tiles = nullptr;
  // [kPromptCounters], or null where tensor_maps is: items that were taken from the list, and tiles
  // in it. Written by PlanPromptAttention; every launch leaves them as it found them, so launches
  // that share them follow each other on one stream.
  uint32_t* counters = nullptr;
  // On the host, read during the call: of attention.kv. Null: do without. Where it is used the two
  // ways give different roundings, so whoever wants equal bits decides once.
  const KvTensorMaps* tensor_maps = nullptr;
  // [query_heads], or null: attention.h.
  const float* sinks = nullptr;
};

// Entries of the work list: an upper bound on the tiles that so many rows make.
inline constexpr uint32_t PromptTilesMax(uint32_t rows_max, uint32_t sequences) {
  return rows_max / kPromptTileRows + (rows_max < sequences ? rows_max : sequences);
}

// Writes params.tiles and counters. Reads row_begin and context_lengths only; other fields but
// sequences and rows_max may be empty.
cudaError_t PlanPromptAttention(const PromptAttentionParams& params, cudaStream_t stream);

// After PlanPromptAttention with the same lengths, on the same stream; any number of times.
// cudaErrorInvalidValue if a limit is exceeded, or if counters are needed and not there.
cudaError_t PromptAttention(const PromptAttentionParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

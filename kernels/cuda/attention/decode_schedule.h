// Which CTA of decode attention does what, worked out on the device from the context lengths, once
// per step; all layers of one window use it. The work is a list of units: for every sequence and
// every head row (a KV head, or a slice of its group when that has more query heads than a head row
// may hold), the blocks that the sequence's last position sees, in order. Each CTA of a grid of
// fixed size takes an equally long range of the list, so a graph captured once replays for any
// lengths.
//
// A unit is one block of the cache; with fixed_split_tokens it is that many positions (boundaries
// at multiples of it), and what a CTA sums then depends on the row's own length alone. The range's
// length is what fills the grid, more where that makes merges too dear: long rows in small batches,
// and batches of equal contexts that whole rows fill almost as evenly.
//
// One CTA, a few microseconds; reads 4 bytes a sequence and 16 of the block tables a CTA of the
// grid, writes 4 a head row and 48 a CTA. Also sets the tickets of decode attention to zero. Limit:
// fewer than 2^32 units.

#pragma once

#include <cstddef>

#include "kernels/cuda/kv.h"

namespace weft::kernels::cuda {

// Query heads that one head row of the work list may hold. A large group as one row has its keys
// read once. So few rows (sequences times KV heads) leave most CTAs idle, and a row's results are
// many: there a group is cut into slices, whose keys come from the L2 again.
inline constexpr uint32_t kDecodeGroupRowsMax = 48;
inline constexpr uint32_t kDecodeSliceRows = 16;
inline constexpr uint32_t kDecodeSlicedRowsMax = 8;

// How the groups of a launch are laid out; the schedule and attention have to agree. `fixed`:
// fixed_split_tokens is not 0, where a row may not depend on how many others there are.
struct DecodeGroups {
  // Query heads of the largest head row.
  uint32_t rows;
  // Head rows that a KV head makes.
  uint32_t slices;

  static constexpr DecodeGroups Of(uint32_t group_max, uint32_t sequences, uint32_t kv_heads,
                                   bool fixed) {
    const bool sliced = !fixed && uint64_t{sequences} * kv_heads <= kDecodeSlicedRowsMax;
    const uint32_t limit = sliced ? kDecodeSliceRows : kDecodeGroupRowsMax;
    return {group_max < limit ? group_max : limit, (group_max + limit - 1) / limit};
  }
};

struct DecodeScheduleParams {
  // [sequences], as in AttentionParams. 0: the sequence has no work; its output will be zeros.
  const uint32_t* context_lengths = nullptr;
  uint32_t sequences = 0;
  uint32_t kv_heads = 0;
  uint32_t group_max = 0;
  // 0 = none.
  uint32_t window = 0;
  // CTAs of the attention kernel (DecodeGrid).
  uint32_t grid = 0;
  // 0: ranges of equal length. Otherwise a multiple of kKvBlockTokens.
  uint32_t fixed_split_tokens = 0;
  // DecodeScheduleBytes, 16-byte aligned. Attention launches that use it must not overlap.
  void* schedule = nullptr;
  // As in AttentionParams: a CTA's first blocks go into the schedule, and attention starts a
  // table's look-up sooner. Without ids nothing of it is read.
  BlockTables tables;
  // May start before the kernel in front of it ends; touches device memory after that.
  bool dependent = false;
};

// For up to so many sequences.
size_t DecodeScheduleBytes(uint32_t sequences, uint32_t kv_heads, uint32_t group_max,
                           uint32_t grid);

cudaError_t MakeDecodeSchedule(const DecodeScheduleParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda

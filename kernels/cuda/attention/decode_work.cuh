// The work list of decode attention: how the schedule lies in memory and how a CTA walks through
// its range of it. Device code, and the layout for the host. What an earlier kernel of the step may
// have written is read past the L1, which can hold lines from before when launches overlap.

#pragma once

#include <cstdint>

#include "kernels/cuda/kv.h"

namespace weft::kernels::cuda {

// Blocks whose table entries a DecodeStart holds.
inline constexpr uint32_t kDecodeStartIds = 4;

// Where a CTA begins, how many units it takes, and what it would otherwise have to look up before
// it can ask for its first keys: one load stands between a launch and those, not three.
struct alignas(16) DecodeStart {
  uint32_t sequence;
  uint32_t head;
  uint32_t unit;
  uint32_t units;
  // Of `sequence`.
  uint32_t length;
  // The same for all CTAs: CTA i begins at place i * units_per_cta of the list.
  uint32_t units_per_cta;
  // How many of the range's first blocks `ids` has, in the order of the walk.
  uint32_t known_ids;
  // Sequences of the batch without a context.
  uint32_t empty_sequences;
  uint32_t ids[kDecodeStartIds];
};

// The caller's buffer: starts[grid], first_units[sequences], tickets[sequences * heads].
struct DecodeScheduleView {
  DecodeStart* starts;
  // Place in the list of a sequence's first unit. For the schedule's kernel alone, when its shared
  // memory is too small.
  uint32_t* first_units;
  // Parts that have arrived of a sequence's head row; 0 between launches.
  uint32_t* tickets;

  __host__ __device__ DecodeScheduleView(void* schedule, uint32_t sequences, uint32_t grid)
      : starts(static_cast<DecodeStart*>(schedule)),
        first_units(reinterpret_cast<uint32_t*>(starts + grid)),
        tickets(first_units + sequences) {}
};

// What the last position of a sequence sees.
struct DecodeRow {
  uint32_t length;
  // First position, and the unit that it lies in.
  uint32_t first;
  uint32_t first_unit;
  uint32_t units;
};

__device__ __forceinline__ DecodeRow MakeDecodeRow(uint32_t length, uint32_t window,
                                                   uint32_t unit_blocks) {
  const uint32_t first = window != 0 && length > window ? length - window : 0;
  const uint32_t unit_tokens = unit_blocks * kKvBlockTokens;
  const uint32_t first_unit = first / unit_tokens;
  return {length, first, first_unit, (length + unit_tokens - 1) / unit_tokens - first_unit};
}

// The list as one kernel's CTAs see it.
struct DecodeWork {
  const uint32_t* context_lengths;
  uint32_t heads;
  uint32_t window;
  uint32_t unit_blocks;
  // Every unit is a part by itself.
  bool fixed;
};

// Goes through a CTA's range part by part. A part is a run of blocks of one sequence and head row;
// its result is merged with the row's other parts.
struct DecodeWalk {
  uint32_t sequence;
  uint32_t head;
  // Next unit of the row, and units of the range that are left.
  uint32_t unit;
  uint32_t left;
  DecodeRow row;
  // The part: its first unit in the row, how many, and its blocks.
  uint32_t part_unit;
  uint32_t part_units;
  uint32_t block;
  uint32_t block_end;

  __device__ __forceinline__ DecodeWalk(const DecodeWork& work, const DecodeStart& start)
      : sequence(start.sequence), head(start.head), unit(start.unit), left(start.units) {
    part_unit = part_units = block = block_end = 0;
    row = MakeDecodeRow(start.length, work.window, work.unit_blocks);
  }

  __device__ __forceinline__ void LoadRow(const DecodeWork& work) {
    row = MakeDecodeRow(__ldcg(work.context_lengths + sequence), work.window, work.unit_blocks);
  }

  // False at the end of the range.
  __device__ __forceinline__ bool Next(const DecodeWork& work) {
    if (left == 0) return false;
    // Units are left, so a row that has some follows.
    while (unit == row.units) {
      unit = 0;
      if (row.units != 0 && ++head < work.heads) break;
      head = 0;
      ++sequence;
      LoadRow(work);
    }
    part_unit = unit;
    part_units = work.fixed ? 1 : min(left, row.units - unit);
    unit += part_units;
    left -= part_units;
    const uint32_t absolute = row.first_unit + part_unit;
    block = max(absolute * work.unit_blocks, row.first / kKvBlockTokens);
    block_end = min((absolute + part_units) * work.unit_blocks,
                    (row.length + kKvBlockTokens - 1) / kKvBlockTokens);
    return true;
  }
};

}  // namespace weft::kernels::cuda

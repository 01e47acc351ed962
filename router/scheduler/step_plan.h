// One step as the scheduler decides it: what the shards drop, which KV blocks they enter into their
// tables, which chunks they prefill and which slots decode. Made by Scheduler::Plan(), read by the
// engine loop on the same thread. Slots, blocks and positions only; it holds no token and no text.

#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace weft::router {

// A piece of a prompt (or of a log that is prefilled again).
struct PlannedChunk {
  SequenceId id;
  Slot slot;
  Position start;
  uint32_t count;
  // First chunk in this epoch since the sequence was (re)admitted.
  bool first;
  // The log ends with this chunk: a token is sampled.
  bool last;
};

// What changes in a sequence's table of one KV group: blocks that leave at the front, then new ones
// at the end. With its first chunk: the blocks of its beginning that the table lacks, and the whole
// table.
struct PlannedBlocks {
  Slot slot;
  uint32_t group;
  uint32_t leave_front;
  // Range in StepPlan::block_ids.
  uint32_t begin;
  uint32_t count;
};

enum class StepKind : uint8_t { kPrefill, kDecode, kFilter };

// Valid until the next call of Plan(). All vectors keep their capacity.
struct StepPlan {
  StepNumber step = 0;
  StepKind kind = StepKind::kDecode;
  std::vector<Slot> drops;
  std::vector<PlannedBlocks> blocks;
  std::vector<BlockId> block_ids;
  std::vector<PlannedChunk> chunks;
  // The running batch takes part (kPrefill); always true for kDecode.
  bool with_decode = false;
  // Running slots that do not take part. Ascending.
  std::vector<Slot> skip_slots;
  // Slots that decode in this step, ascending: the first rows of the answer; the chunks with `last`
  // follow in order.
  std::vector<Slot> decode_slots;
  // What the cost model expects.
  uint32_t predicted_us = 0;
  // What the chunks beside decode rows were held to; 0 when nothing held them.
  uint32_t target_us = 0;
};

}  // namespace weft::router

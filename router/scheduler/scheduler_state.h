// All that the later plans of a scheduler depend on, between two events, as plain data: what a
// recording that has dropped its beginning starts from. Made by Scheduler::Save(), taken by
// Scheduler::Restore(). It holds no token: of a log it has the length and the hashes of its full
// blocks, and that is all that plans depend on.
//
// A scheduler that goes on from it (or replays a recording from its first event) therefore gets ids
// that stand for blocks: label ids. The last id of a block is the block's number, equal numbers for
// equal hashes, and all other ids are 0; SchedulerConfig::label_ids makes that number the hash.

#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "router/scheduler/prefix_hash.h"
#include "router/scheduler/sequence.h"

namespace weft::router {

// The fields have the meaning of those of the same names in the classes they come from.
struct TableState {
  uint32_t capacity = 0;
  uint32_t first = 0;
  uint32_t end = 0;
  uint32_t untold_left = 0;
  uint32_t untold_appended = 0;
  // first .. end - 1.
  std::vector<BlockId> blocks;
};

struct SequenceState {
  SequenceId id = 0;
  uint32_t tenant = 0;
  int32_t priority = 0;
  int64_t turn_us = 0;
  uint32_t prompt_length = 0;
  uint32_t length_limit = 0;
  bool ignore_eos = false;
  bool bypass_prefix_cache = false;
  uint32_t log_tokens = 0;
  std::vector<BlockHash> block_hashes;
  Phase phase = Phase::kWaiting;
  bool was_admitted = false;
  bool recovering = false;
  uint32_t cached_tokens = 0;
  uint32_t prompt_reached = 0;
  uint64_t refused_at_freed = 0;
  uint32_t refused_cost = 0;
  uint32_t losses = 0;
  Position lost_at = 0;
  uint32_t steps_in_flight = 0;
  uint32_t samples_in_flight = 0;
  Slot slot = kNoSlot;
  std::vector<TableState> tables;
  uint32_t reach = 0;
  uint64_t next_leave = 0;
  bool has_untold = false;
  Position computed = 0;
  Position confirmed = 0;
  uint32_t published_blocks = 0;
  Position kept_until = 0;
};

struct TenantState {
  uint32_t index = 0;
  double weight = 1;
  double served = 0;
  uint64_t wait_number = 0;
  // Without sequences since `idle_since_us`.
  bool idle = false;
  int64_t idle_since_us = 0;
};

struct PublishedBlock {
  BlockId block = 0;
  uint32_t group = 0;
  BlockHash hash;
};

// A sequence's part in a step in flight. By id: the sequence may be gone when the answer comes.
struct StepRow {
  SequenceId id;
  Slot slot;
  // Positions below have their KV once the step has run.
  Position kv_end;
  // The answer has a token for it.
  bool samples;
};

struct StepState {
  uint32_t rows = 0;
  uint32_t prompt_tokens = 0;
  uint64_t context_tokens = 0;
  // In the order of the answer.
  std::vector<StepRow> step_rows;
};

struct SchedulerState {
  int64_t now_us = 0;
  bool formed = false;
  StepNumber next_step = 1;
  std::vector<Slot> drops;
  // Oldest first; the last one is step next_step - 1.
  std::vector<StepState> in_flight;
  // By id.
  std::vector<SequenceState> sequences;

  // -- Pool and prefix cache
  uint32_t kv_blocks = 0;
  // Plainly free, the last one goes first; and those that hold a prefix, longest released first.
  std::vector<BlockId> plain;
  std::vector<BlockId> cached;
  std::vector<PublishedBlock> published;
  uint64_t freed_count = 0;

  // -- Tenants: those with sequences by index, then the others, longest idle first
  std::vector<TenantState> tenants;
  double turn_served = 0;
  double weights = 0;
  uint64_t waits = 0;

  // -- Cost model
  bool cost_known = false;
  std::vector<double> knots_us;
  double context_token_us = 0;
};

}  // namespace weft::router

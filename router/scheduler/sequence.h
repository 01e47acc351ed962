// The progress of one request: its token log, which is the truth (invariant state.log), and what of
// it the shards hold in the current epoch. Plain data, owned by the scheduler; the functions of the
// scheduler keep its fields consistent (see invariants.cc for how they belong together).

#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/ids.h"
#include "common/limits.h"
#include "router/scheduler/block_table.h"
#include "router/scheduler/events.h"
#include "router/scheduler/prefix_hash.h"

namespace weft::router {

enum class Phase : uint8_t {
  // No slot and no blocks: new, preempted, or its group was lost.
  kWaiting,
  // Holds a slot; its log is being run through the model in chunks.
  kPrefilling,
  // Belongs to the shards' running batch from the step after its last chunk.
  kDecoding,
};

struct Sequence;
struct TenantShare;

// Orders sequences by Sequence::Outranks().
struct ByTurn {
  bool operator()(const Sequence* a, const Sequence* b) const;
};
using TurnSet = std::set<Sequence*, ByTurn>;

struct Sequence {
  SequenceId id = 0;
  // Stays in the table while the sequence lives.
  TenantShare* tenant = nullptr;
  int32_t priority = 0;
  // Its arrival, less the waiting that its priority is worth. Earlier goes first.
  int64_t turn_us = 0;
  uint32_t prompt_length = 0;
  // Longest log: prompt and max_new_tokens.
  uint32_t length_limit = 0;
  bool ignore_eos = false;
  // Further ids that end it. Ascending.
  std::vector<TokenId> stop_ids;
  bool bypass_prefix_cache = false;
  uint64_t cache_salt = 0;

  // Prompt and confirmed output.
  std::vector<TokenId> log;
  // Of every full block of the log; empty without a prefix cache.
  std::vector<BlockHash> block_hashes;

  Phase phase = Phase::kWaiting;
  // Was admitted before, in this or an earlier epoch.
  bool was_admitted = false;
  // Held a slot when the group was lost and has not caught up since.
  bool recovering = false;
  // Prompt tokens found in the prefix cache at the first admission.
  uint32_t cached_tokens = 0;
  // Prompt tokens that were computed or found so far, in whatever epoch. At the first admission the
  // tenant was charged for the whole prompt.
  uint32_t prompt_reached = 0;
  // Value of BlockPool::freed_count() when it did not fit: no use to try again before it grows.
  uint64_t refused_at_freed = 0;
  // What it would have taken from BlockPool::free_count() then.
  uint32_t refused_cost = 0;

  // -- Lost groups (suspects.cc) ----------------------------------------------------------------
  // Groups lost with this sequence in flight since it last got beyond `lost_at`.
  uint32_t losses = 0;
  // The farthest position that a lost step was to reach.
  Position lost_at = 0;

  // -- In flight; survives a preemption -----------------------------------------------------------
  // Steps in flight that this sequence takes part in.
  uint32_t steps_in_flight = 0;
  // Tokens that those steps will sample.
  uint32_t samples_in_flight = 0;

  // -- On the shards; void while waiting ----------------------------------------------------------
  Slot slot = kNoSlot;
  // By KV group; most models have one.
  absl::InlinedVector<BlockTable, 1> tables;
  // Every table covers the blocks below, or will: one that does not yet takes a block for each that
  // leaves its front. Such a table rolls.
  uint32_t reach = 0;
  // No block of any table leaves before a row at this position.
  uint64_t next_leave = 0;
  // Its tables have changed since the shards were told.
  bool has_untold = false;
  // The KV of positions below is written once all planned steps have run ...
  Position computed = 0;
  // ... and is known to be written.
  Position confirmed = 0;
  // No chunk was planned since it was admitted.
  bool first_chunk = false;
  // Blocks from the beginning that are published in each group, or will never be.
  uint32_t published_blocks = 0;
  // Tokens of this plan's chunk; 0 outside PlanChunks().
  uint32_t granted = 0;
  // No victim of a preemption while `computed` is below; its tables have blocks for so many tokens
  // from the start, or roll towards them. 0 when it was let in by age alone.
  Position kept_until = 0;

  // -- Links of WaitingQueue ----------------------------------------------------------------------
  Sequence* previous = nullptr;
  Sequence* next = nullptr;
  // It stands before all tenants.
  bool returns_first = false;
  // Its place in a set of waiting sequences; while it is in none, the node itself, so that
  // preempting it allocates nothing.
  TurnSet::iterator turn_place;
  TurnSet::node_type turn_node;

  // Length of the log when all steps in flight are answered.
  uint32_t planned_length() const { return static_cast<uint32_t>(log.size()) + samples_in_flight; }
  // Tokens of the log still to be run through the model. REQUIRES: prefilling.
  uint32_t rest() const { return static_cast<uint32_t>(log.size()) - computed; }
  bool rolls(const BlockTable& table) const { return table.end() < reach; }
  // It may be what loses the groups: it runs alone.
  bool suspect() const { return losses > kGroupLossesShared; }
  // It was just let in out of the order of arrival: it is no victim of a preemption.
  bool kept() const { return computed < kept_until; }
  // This sequence's turn comes before that of `other`.
  bool Outranks(const Sequence& other) const {
    return turn_us != other.turn_us ? turn_us < other.turn_us : id < other.id;
  }
};

inline bool ByTurn::operator()(const Sequence* a, const Sequence* b) const {
  return a->Outranks(*b);
}

}  // namespace weft::router

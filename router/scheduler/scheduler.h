// Decides what every step does: which sequences decode, which prompt chunks run, which KV blocks
// they get, who waits and who is preempted. A pure state machine: events in, StepPlan out; no
// clock, thread, socket, log or metric (invariant sched.pure), and no heap allocation in Plan().
// Owned by the engine loop and called by its thread only. The same events give the same plans.
//
// It owns the token log of every live sequence (invariant state.log) and all KV bookkeeping. It
// never sees text, and never forgets a sequence: each one leaves through exactly one Ended record.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/limits.h"

namespace weft::router {

// Fixed for the life of a scheduler.
struct SchedulerConfig {
  // Slots: sequences that hold KV at the same time. 1 .. kRunningMax.
  uint32_t running_max = kRunningDefault;
  // Tokens of one step, decode rows and chunks together. >= running_max.
  uint32_t step_tokens_max = kStepTokensDefault;
  // Tokens of a KV block.
  uint32_t block_tokens = kKvBlockTokensCpu;
  // Longest sequence, prompt and output together.
  uint32_t context_tokens_max = 0;
  // Waiting sequences, for sizing; admission keeps the real limit.
  uint32_t waiting_max = kQueueRequestsDefault;
  // Target of the time between two tokens of a running stream; bounds the chunks beside decode
  // rows. 0: each prompt under way or waiting may add as much time to a step as its decode rows
  // take, so that one long prompt about doubles the gaps of streams and its own time to first
  // token, while a full queue of prompts gets nearly all of the device.
  uint32_t inter_token_target_us = 0;
  // Share of the pool, in thousandths, kept free when a sequence is admitted or comes back.
  uint32_t watermark_permille = 10;
  bool prefix_cache = true;
  // Key of the prefix hash; random per process.
  uint64_t hash_key[2] = {0, 0};
  // Ids that end a sequence unless it ignores them. Sorted.
  std::vector<TokenId> eos_ids;
};

// A formed group: the start of an epoch.
struct GroupInfo {
  Epoch epoch = 0;
  // Blocks of the pool (one KV group).
  uint32_t kv_blocks = 0;
  // First points of the cost model, from Warmup.
  struct Cost {
    uint32_t rows;
    uint32_t prompt_tokens;
    uint64_t context_tokens;
    uint32_t step_us;
  };
  absl::Span<const Cost> costs;
};

// A sequence that admission accepted.
struct Arrival {
  SequenceId id = 0;
  // Copied into the log.
  absl::Span<const TokenId> prompt;
  // > 0; prompt + max_new_tokens <= context_tokens_max.
  uint32_t max_new_tokens = 0;
  // Higher goes first.
  int32_t priority = 0;
  bool ignore_eos = false;
  // Skip the lookup in the prefix cache (its blocks may still be published).
  bool bypass_prefix_cache = false;
  // Separates tenants and adapters in the prefix cache.
  uint64_t cache_salt = 0;
};

enum class EndReason : uint8_t {
  kLength,
  kEosToken,
  kCancelled,
  // kGroupLossesMax groups were lost while it was in a step and got no further (invariant
  // scope.one).
  kGroupLosses,
};

// A token of the log, confirmed by a step.
struct Emitted {
  SequenceId id;
  TokenId token;
  // Row of the step's result that sampled it.
  uint32_t row;
};

// The end of a sequence. Its slot and blocks are already on their way back.
struct Ended {
  SequenceId id;
  EndReason reason;
};

// One row of a step's answer: what rank 0 sampled for a slot.
struct SampledRow {
  Slot slot;
  TokenId token;
};

struct StepTime {
  // Device time of the step.
  uint32_t device_us = 0;
};

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

// New blocks of a sequence's table; with its first chunk the whole table so far.
struct PlannedBlocks {
  Slot slot;
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

// Counters and gauges for the probe; totals since the start.
struct SchedulerStats {
  uint32_t running = 0;
  uint32_t waiting = 0;
  // Of both: those that run alone because more than kGroupLossesShared groups were lost with them.
  uint32_t suspects = 0;
  uint32_t blocks_total = 0;
  // Referenced by a sequence.
  uint32_t blocks_used = 0;
  // Free but holding a published prefix.
  uint32_t blocks_cached = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_queried_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t evicted_blocks = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // -- Events ----------------------------------------------------------------------------------
  // A group formed: every live sequence is prefilled again from its log, in priority order.
  // REQUIRES: the pool holds each live sequence at its full length, alone.
  void OnGroupFormed(const GroupInfo& group, int64_t now_us);
  // The group is lost: slots, blocks and steps in flight are void; logs stay. Appends the Ended
  // records of sequences that have lost kGroupLossesMax groups without progress.
  void OnGroupLost(int64_t now_us, std::vector<Ended>* ended);
  void OnArrival(const Arrival& arrival, int64_t now_us);
  // The sequence is not wanted any more (client gone, deadline, stop string). Unknown ids are
  // ignored: the sequence may have ended just before. Appends its Ended record.
  void OnCancel(SequenceId id, int64_t now_us, std::vector<Ended>* ended);
  // The answer to the oldest step in flight. Appends what became of it. REQUIRES: one row for each
  // of the plan's decode_slots and each chunk with `last`, in that order.
  void OnStepDone(StepNumber step, absl::Span<const SampledRow> rows, const StepTime& time,
                  int64_t now_us, std::vector<Emitted>* emitted, std::vector<Ended>* ended);

  // -- Decisions -------------------------------------------------------------------------------
  // The next step, or null when there is nothing to do or kStepsInFlightMax steps are in flight.
  const StepPlan* Plan(int64_t now_us);

  // -- Views -----------------------------------------------------------------------------------
  // Prompt and output ids of a live sequence. REQUIRES: `id` is live.
  absl::Span<const TokenId> Log(SequenceId id) const;
  uint32_t PromptLength(SequenceId id) const;
  // Prompt tokens found in the prefix cache at the first admission; 0 before it.
  uint32_t CachedTokens(SequenceId id) const;
  bool IsLive(SequenceId id) const;
  SchedulerStats Stats() const;

  // The sequence runs alone, see SchedulerStats.suspects. REQUIRES: `id` is live.
  bool IsSuspectForTest(SequenceId id) const;
  // Aborts the process when any bookkeeping invariant is broken; for tests and simulation.
  void CheckInvariantsForTest() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::router

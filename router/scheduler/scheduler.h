// Decides what every step does: which sequences decode, which prompt chunks run, which KV blocks
// they get, who waits and who is preempted. A pure state machine: events in, StepPlan out; no
// clock, thread, socket, log or metric (invariant sched.pure), and no heap allocation in Plan().
// Owned by the engine loop and called by its thread only. The same events give the same plans.
//
// Who goes next: of the tenants with waiting sequences the one that was served least for its weight
// (tenant_table.h); of its sequences the one whose turn is first (events.h, kAgeingUsDefault).
// Served are the prompt tokens that are computed and the tokens that are generated. A prompt is
// charged when it is let in, less what the prefix cache holds; what an early end leaves undone is
// given back. Prefilling again, after a preemption or a lost group, is not charged.
// Who is preempted when blocks run out: a sequence of the tenant that was served most, of those the
// one whose turn is last; but never the one whose turn is first of all, and never one that was let
// in while other tenants had sequences, or past a higher priority, before it has used up the blocks
// it came in with. Those hold a block of tokens beyond its log, so no two sequences can take each
// other's place without both getting on.
// Slots: while more than one tenant is known, the last sixteenth of the slots and of the pool is
// for tenants that hold less than their share, by weight, of the slots. So an occasional request
// does not wait until one of a flood ends.
//
// It owns the token log of every live sequence (invariant state.log) and all KV bookkeeping. It
// never sees text, and never forgets a sequence: each one leaves through exactly one Ended record.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/scheduler/event_tap.h"
#include "router/scheduler/events.h"
#include "router/scheduler/kv_groups.h"
#include "router/scheduler/prefix_hasher.h"
#include "router/scheduler/scheduler_state.h"
#include "router/scheduler/step_plan.h"

namespace weft::router {

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
  // Of both, those of each KV group; `kv_groups` of them.
  uint32_t kv_groups = 0;
  std::array<uint32_t, kKvGroupsMax> group_blocks_used{};
  std::array<uint32_t, kKvGroupsMax> group_blocks_cached{};
  uint64_t preemptions = 0;
  // Tenants that are known: those with sequences and those remembered for a while.
  uint32_t tenants = 0;
  // Prompts that came without usable hashes and were hashed on this thread.
  uint64_t prompts_hashed_here = 0;
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

  // A scheduler that goes on from `state`. INVALID_ARGUMENT when it is none of a scheduler with
  // this `config`, whose label_ids must be set.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Restore(const SchedulerConfig& config,
                                                            const SchedulerState& state);

  // `tap` hears of every event and plan from now on; it outlives this. Null: nobody does.
  void SetTap(EventTap* tap) { tap_ = tap; }

  // -- Events; time in microseconds from any beginning, never falling
  // ------------------------------- A group formed: every live sequence is prefilled again from its
  // log, in order of turn. Appends the Ended records of sequences that the pool cannot hold at
  // their limit, see CutLimit().
  void OnGroupFormed(const GroupInfo& group, int64_t now_us, std::vector<Ended>* ended);
  // The group is lost: slots, blocks and steps in flight are void; logs stay. Appends the Ended
  // records of sequences that have lost kGroupLossesMax groups without progress.
  void OnGroupLost(int64_t now_us, std::vector<Ended>* ended);
  // Takes a sequence into the queue, or says why not and keeps nothing: INVALID_ARGUMENT names the
  // field that is out of range, ALREADY_EXISTS means the id is live, RESOURCE_EXHAUSTED that the
  // pool, which may have shrunk since the request was accepted, cannot hold it.
  absl::Status OnArrival(Arrival arrival, int64_t now_us);
  // From now on the sequence ends at `tokens_max` tokens, prompt and output together, if it would
  // end later. FAILED_PRECONDITION, and nothing changes, when it has that many already or steps in
  // flight will take it further; NOT_FOUND when it is not live.
  absl::Status CutLimit(SequenceId id, uint32_t tokens_max, int64_t now_us);
  // The sequence is not wanted any more (client gone, deadline, stop string). Unknown ids are
  // ignored: the sequence may have ended just before. Appends its Ended record.
  void OnCancel(SequenceId id, int64_t now_us, std::vector<Ended>* ended);
  // Cached prefixes that no sequence refers to are forgotten: nothing that comes later finds them.
  // Sequences keep their blocks, whose prefixes stay published. Costs a look-up for each block that
  // was cached.
  void OnFlush(int64_t now_us);
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
  // Of the full blocks of a live sequence's log; none without a prefix cache. REQUIRES: as Log().
  absl::Span<const BlockHash> BlockHashes(SequenceId id) const;
  // Prompt tokens found in the prefix cache at the first admission; 0 before it.
  uint32_t CachedTokens(SequenceId id) const;
  bool IsLive(SequenceId id) const;
  // Copy it to hash prompts on other threads; it never changes.
  const PrefixHasher& prefix_hasher() const;
  // Tokens that one sequence may have when a pool of so many blocks holds it alone: a multiple of
  // the block, or more than the context when the pool holds that.
  uint64_t TokensIn(uint32_t kv_blocks) const;
  SchedulerStats Stats() const;
  // All that later plans depend on. Costs about 1 us for each live sequence, and a few ns for each
  // block of the pool.
  void Save(SchedulerState* state) const;

  // The sequence runs alone, see SchedulerStats.suspects. REQUIRES: `id` is live.
  bool IsSuspectForTest(SequenceId id) const;
  // It cannot be preempted yet because it was just let in. REQUIRES: `id` is live.
  bool IsKeptForTest(SequenceId id) const;
  // What its tenant was served: tokens divided by weight. REQUIRES: `id` is live.
  double ServedForTest(SequenceId id) const;
  // Aborts the process when any bookkeeping invariant is broken; for tests and simulation.
  void CheckInvariantsForTest() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  EventTap* tap_ = nullptr;
};

}  // namespace weft::router

// The state behind router/scheduler/scheduler.h and the names of its parts. Where to look:
//   scheduler.cc   groups that form and are lost, cancels, views
//   arrival.cc     sequences that arrive, and limits that are cut
//   placement.cc   who gets a slot and blocks, and how they are given back
//   planning.cc    one step: decode rows, prompt chunks, the finished plan
//   tables.cc      the KV blocks of a sequence: what it finds, takes and leaves as it goes on
//   preemption.cc  who loses both when blocks run out
//   suspects.cc    who may be what loses the groups, and its steps alone
//   completion.cc  the answer to a step: tokens, ends, published blocks
//   state.cc       all of it as plain data, and back (state_check.cc: whether it can go back)
//   invariants.cc  how all of it belongs together

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "router/scheduler/block_pool.h"
#include "router/scheduler/cost_model.h"
#include "router/scheduler/kv_groups.h"
#include "router/scheduler/prefix_cache.h"
#include "router/scheduler/prefix_hasher.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/scheduler_state.h"
#include "router/scheduler/sequence.h"
#include "router/scheduler/slot_set.h"
#include "router/scheduler/tenant_table.h"
#include "router/scheduler/waiting_queue.h"

namespace weft::router {

struct StepInFlight {
  StepNumber step = 0;
  StepShape shape;
  // In the order of the answer.
  std::vector<StepRow> rows;
};

class Scheduler::Impl {
 public:
  explicit Impl(const SchedulerConfig& config);

  // Time goes on. Every event begins with it.
  void Advance(int64_t now_us);
  void OnGroupFormed(const GroupInfo& group, std::vector<Ended>* ended);
  void OnGroupLost(std::vector<Ended>* ended);
  // Takes the prompt unless it refuses.
  absl::Status OnArrival(Arrival& arrival);
  absl::Status CutLimit(SequenceId id, uint32_t tokens_max);
  void OnCancel(SequenceId id, std::vector<Ended>* ended);
  void OnFlush() { pool_.DropCached(); }
  void OnStepDone(StepNumber step, absl::Span<const SampledRow> rows, const StepTime& time,
                  std::vector<Emitted>* emitted, std::vector<Ended>* ended);
  const StepPlan* Plan();

  bool IsLive(SequenceId id) const { return live_.contains(id); }
  // REQUIRES: `id` is live.
  const Sequence& Live(SequenceId id) const;
  const PrefixHasher& hasher() const { return hasher_; }
  uint64_t TokensIn(uint32_t kv_blocks) const;
  SchedulerStats Stats() const;
  void Save(SchedulerState* state) const;
  // REQUIRES: nothing has happened yet.
  absl::Status Restore(const SchedulerState& state);
  void CheckInvariantsForTest() const;

 private:
  // -- planning.cc
  void BeginPlan();
  void PlanDecodeRows();
  void PlanDecodeRow(Sequence* sequence);
  void PlanChunks();
  // Tokens that all chunks of this step may take.
  uint32_t ChunkBudget(const Sequence& leader);
  // How long a step with the planned rows may take where no target is set.
  uint32_t SharedStepUs() const;
  // Gives the sequence up to `tokens` more of `budget` in this step's chunk.
  void Grant(Sequence* sequence, uint32_t tokens, uint32_t* budget);
  // Shares the step of a long prompt with prompts that are short beside it and with those of other
  // tenants.
  void GrantOthers(const Sequence& leader, uint32_t* budget);
  void PlanChunk(Sequence* sequence);
  // The rows of the plan are complete: kind, lists, prediction, and the record for the answer.
  const StepPlan* FinishPlan();

  // -- placement.cc
  // Gives a waiting sequence a slot and blocks for its whole log, if they fit.
  bool TryAdmit(Sequence* sequence);
  // A tenant that holds its share of the slots leaves the last ones to those that hold less.
  bool LeavesReserve(const Sequence& sequence) const;
  // It was let in: its tenant is charged for the prompt if this is the first time.
  void CountAdmission(Sequence* sequence);
  // Gives back slot and blocks; the next plan tells the shards.
  void Vacate(Sequence* sequence);
  void EnterRunning(Sequence* sequence);
  void LeaveRunning(Sequence* sequence);

  // -- tables.cc
  // Makes the tables cover the longest published prefix of the log whose blocks are all there: all
  // of groups that see the whole context, the last window of the others. Nothing is shared yet.
  // Returns its blocks.
  uint32_t LookUpPrefix(Sequence* sequence) const;
  uint32_t HitsOfWholeContexts(Sequence* sequence, uint32_t hits_max) const;
  uint32_t HitsOfWindows(Sequence* sequence, uint32_t hits_max) const;
  BlockId FindBlock(const Sequence& sequence, uint32_t group, uint32_t block) const;
  // Where the table of `group` would end if the sequence came in with `hits` blocks of prefix.
  uint32_t EndAtAdmission(uint32_t group, uint32_t hits, uint32_t reach) const;
  // What coming in would take from the pool's free_count(). REQUIRES: LookUpPrefix() gave `hits`.
  uint32_t CostOfTables(const Sequence& sequence, uint32_t hits, uint32_t reach) const;
  // Takes all of that. REQUIRES: there is so much.
  void TakeTables(Sequence* sequence, uint32_t hits, uint32_t reach);
  // A block in each group for the position that the sequence's next row writes.
  void TakeBlocks(Sequence* sequence);
  // Lets blocks leave that lie behind the windows of rows at `start` .. end - 1 and later ones, and
  // tables that roll take as many. A block whose KV is not known to be written stays a while, to be
  // published, unless `all` leave or the table lacks room.
  void LeaveBehind(Sequence* sequence, Position start, Position end, bool all) {
    if (start >= sequence->next_leave) LeaveFronts(sequence, start, end, all);
  }
  void LeaveFronts(Sequence* sequence, Position start, Position end, bool all);
  // The front block of a table leaves.
  void LeaveOne(Sequence* sequence, uint32_t group);
  void FindNextLeave(Sequence* sequence) const;
  // Enters into the plan what the shards do not know of the sequence's tables.
  void Tell(Sequence* sequence) {
    if (sequence->has_untold) TellTables(sequence);
  }
  void TellTables(Sequence* sequence);
  void ReleaseTables(Sequence* sequence);
  void NoteUntold(Sequence* sequence);

  // -- preemption.cc
  // Preempts until every row of the next step that needs a block gets one. Sequences that may not
  // be preempted may be all that is left: then the first by turn stands still for a few steps.
  void MakeRoomForRows();
  // Blocks that rows of the next step need.
  uint32_t BlocksNeeded() const;
  // Its next row writes into a block that it does not have.
  bool NeedsBlock(const Sequence& sequence) const;
  // Who is preempted next; null when nobody may be.
  Sequence* ChooseVictim() const;
  // The sequence waits again, at its turn.
  void Preempt(Sequence* sequence);

  // -- suspects.cc
  // A row of a lost step: its sequence has lost one group more, and forgets what is in flight.
  void CountLoss(const StepRow& row);
  // Takes the claims of `losses` back: the sequence got further, or ends.
  void Acquit(Sequence* sequence);
  void EndLosers(std::vector<Ended>* ended);
  // Plans the rows of one suspect, or none while it waits for what is in flight; false when there
  // is no room for any. REQUIRES: suspects_ > 0.
  bool PlanTrial();
  // Blocks for the suspect's row, from whoever stands last; false when that is itself.
  bool TakeBlocksForTrial(Sequence* sequence);
  // The suspect that holds a slot, or the first of the queue.
  Sequence* FindSuspect();

  // -- completion.cc
  void ConfirmKv(Sequence* sequence, Position kv_end);
  void Append(Sequence* sequence, TokenId token, std::vector<Ended>* ended);
  void AppendToLog(Sequence* sequence, TokenId token);
  void End(Sequence* sequence, EndReason reason, std::vector<Ended>* ended);

  // -- scheduler.cc
  // Null when the sequence is not live.
  Sequence* Find(SequenceId id);
  uint32_t BlocksFor(uint32_t tokens) const {
    return (tokens + config_.block_tokens - 1) / config_.block_tokens;
  }
  // Alone, the pool holds a sequence of so many tokens. (The KV of the last token is never
  // written.)
  bool FitsPool(uint32_t length_limit) const {
    return groups_.SequenceMax(BlocksFor(length_limit - 1)) <= pool_.total();
  }
  // What follows from the number of blocks of the group's pool.
  void SizeForPool(uint32_t kv_blocks);
  // Ends whom the pool of the group that has just formed cannot hold.
  void EndWhoFitsNoMore(std::vector<Ended>* ended);
  // Ends a recovery's claim on the full budget.
  void CaughtUp(Sequence* sequence);
  StepInFlight& InFlight(uint32_t i) {
    return in_flight_[(oldest_in_flight_ + i) % kStepsInFlightMax];
  }

  // -- arrival.cc
  absl::Status CheckArrival(const Arrival& arrival) const;

  // -- state.cc
  void RestorePrefixes(const std::vector<PublishedBlock>& published);
  void RestoreSequence(const SequenceState& saved);

  // -- invariants.cc
  void CheckSequence(const Sequence& sequence) const;
  void CheckTables(const Sequence& sequence) const;
  void CheckSlots() const;
  void CheckBlocks() const;
  void CheckInFlight() const;

  const SchedulerConfig config_;
  const KvGroups groups_;

  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> live_;
  // The latest time of any event.
  int64_t now_us_ = 0;
  const PrefixHasher hasher_;
  TenantTable tenants_;
  WaitingQueue waiting_;
  // Who holds a slot, by turn.
  std::vector<Sequence*> running_;

  // -- The current group; void between groups -----------------------------------------------------
  bool formed_ = false;
  StepNumber next_step_ = 1;
  // By slot; null when free.
  std::vector<Sequence*> slots_;
  SlotSet free_slots_;
  // The shards' running batch as the next step finds it, once its drops are applied.
  SlotSet decoding_slots_;
  // Slots that somebody left since the last plan.
  std::vector<Slot> drops_;
  PrefixCache cache_;
  BlockPool pool_;
  // Blocks that stay free when a sequence is admitted beside others.
  uint32_t watermark_blocks_ = 0;
  // Sequences with `has_untold` set.
  uint32_t untold_ = 0;
  // The last slots and blocks, which are for tenants that hold less than their share of the slots.
  const uint32_t reserve_slots_;
  uint32_t reserve_blocks_ = 0;
  CostModel cost_;
  std::array<StepInFlight, kStepsInFlightMax> in_flight_;
  uint32_t oldest_in_flight_ = 0;
  uint32_t in_flight_count_ = 0;
  // Sequences with `recovering` set.
  uint32_t recovering_ = 0;
  // Sequences with suspect() set.
  uint32_t suspects_ = 0;
  // The suspect that a plan admits.
  const Sequence* on_trial_ = nullptr;

  // -- The plan in the making ---------------------------------------------------------------------
  StepPlan plan_;
  SlotSet row_slots_;
  StepShape shape_;
  bool preempted_ = false;
  uint32_t chunk_count_ = 0;
  // By turn, but the leader is first; those admitted in this plan last.
  std::vector<Sequence*> prefilling_;

  uint64_t preemptions_ = 0;
  uint64_t prefix_queried_tokens_ = 0;
  uint64_t prefix_hit_tokens_ = 0;
  uint64_t prompts_hashed_here_ = 0;
};

}  // namespace weft::router

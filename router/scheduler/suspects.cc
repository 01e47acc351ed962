// A sequence whose step always ends its group must end itself, and nothing else (invariant
// scope.one). Nobody can tell from one lost group whose step it was, so losses are counted for each
// sequence that was in flight, until it gets beyond what the lost steps were to reach: a token that
// only comes from prefilling the log again is no progress. Who lost two groups runs alone, one
// after the other, so that a further loss has one suspect; what was innocent joins the others again
// after a few steps. A shard may die of something else just then: the second such loss ends it.

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

void Scheduler::Impl::CountLoss(const StepRow& row) {
  Sequence* const s = Find(row.id);
  if (s == nullptr) return;
  s->lost_at = std::max(s->lost_at, row.kv_end);
  // It was in both steps in flight, and is counted.
  if (s->steps_in_flight == 0) return;
  s->steps_in_flight = s->samples_in_flight = 0;
  if (++s->losses == kGroupLossesShared + 1) ++suspects_;
}

void Scheduler::Impl::Acquit(Sequence* s) {
  if (s->suspect()) --suspects_;
  s->losses = 0;
  s->lost_at = 0;
}

void Scheduler::Impl::EndLosers(std::vector<Ended>* ended) {
  // Nobody holds a slot any more: all are in the queue.
  const auto lost = [](const Sequence& s) { return s.losses >= kGroupLossesMax; };
  while (Sequence* const s = waiting_.FindIf(lost)) End(s, EndReason::kGroupLosses, ended);
}

Sequence* Scheduler::Impl::FindSuspect() {
  for (Sequence* const s : running_) {
    if (s->suspect()) return s;
  }
  return waiting_.FindIf([](const Sequence& s) { return s.suspect(); });
}

bool Scheduler::Impl::TakeBlocksForTrial(Sequence* s) {
  // The others stand still: who was just let in would never get on.
  LeaveBehind(s, s->computed, s->computed + 1, /*all=*/true);
  while (pool_.free_count() < groups_.count()) {
    Sequence* const victim = running_.back();
    Preempt(victim);
    if (victim == s) return false;
  }
  TakeBlocks(s);
  return true;
}

bool Scheduler::Impl::PlanTrial() {
  Sequence* const s = FindSuspect();
  WEFT_CHECK(s != nullptr);
  if (s->phase == Phase::kWaiting) {
    // What is in flight is of others, and would share its losses.
    if (in_flight_count_ > 0) return true;
    on_trial_ = s;
    const bool admitted = TryAdmit(s);
    on_trial_ = nullptr;
    // The others go on until there is room.
    if (!admitted) return false;
  }
  if (s->phase == Phase::kDecoding) {
    if (!NeedsBlock(*s) || TakeBlocksForTrial(s)) PlanDecodeRow(s);
    return true;
  }
  uint32_t budget = config_.step_tokens_max;
  Grant(s, budget, &budget);
  if (s->granted > 0) PlanChunk(s);
  return true;
}

}  // namespace weft::router

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "tests/sim/world.h"

namespace weft::router {

bool World::Outranks(SequenceId a, SequenceId b) const {
  const Request& left = live_.at(a);
  const Request& right = live_.at(b);
  return left.turn_us != right.turn_us ? left.turn_us < right.turn_us : a < b;
}

// Called before the shard runs the plan.
void World::CheckPlan(const StepPlan& plan) {
  WEFT_CHECK_EQ(plan.step, ++planned_);
  report_.digest = Mix(report_.digest ^ plan.step);
  for (const Slot slot : plan.decode_slots) report_.digest = Mix(report_.digest ^ slot);
  for (const BlockId block : plan.block_ids) report_.digest = Mix(report_.digest ^ block);
  for (const PlannedBlocks& delta : plan.blocks) {
    if (delta.leave_front > 0) report_.digest = Mix(report_.digest ^ delta.leave_front);
  }
  for (const PlannedChunk& chunk : plan.chunks) {
    report_.digest = Mix(report_.digest ^ Mix(chunk.id) ^ chunk.count);
  }
  const StepKind kind = !plan.chunks.empty()         ? StepKind::kPrefill
                        : !plan.decode_slots.empty() ? StepKind::kDecode
                                                     : StepKind::kFilter;
  WEFT_CHECK(plan.kind == kind);
  WEFT_CHECK(plan.kind != StepKind::kFilter || !plan.drops.empty());
  WEFT_CHECK_EQ(plan.with_decode, !plan.decode_slots.empty());
  WEFT_CHECK(std::is_sorted(plan.decode_slots.begin(), plan.decode_slots.end()));
  if (plan.kind == StepKind::kPrefill && plan.with_decode) ++report_.mixed_steps;
  CheckRanks(plan);
  CheckBudget(plan);
  CheckAdmissions(plan);
}

// Who keeps a slot, who loses one.
void World::CheckRanks(const StepPlan& plan) {
  std::vector<SequenceId> kept;
  std::vector<SequenceId> victims;
  std::vector<SequenceId> still;
  shard_->ForEachSlot([&](Slot slot, SequenceId id) {
    const bool dropped = std::find(plan.drops.begin(), plan.drops.end(), slot) != plan.drops.end();
    WEFT_CHECK_MSG(dropped || live_.count(id) == 1,
                   absl::StrCat("ended sequence ", id, " is not dropped by the next plan"));
    if (!dropped) {
      kept.push_back(id);
      const Request& request = live_.at(id);
      const bool decodes =
          std::binary_search(plan.decode_slots.begin(), plan.decode_slots.end(), slot);
      const bool complete = request.log.size() + request.samples_in_flight >= request.length_limit;
      WEFT_CHECK_MSG(!decodes || !complete,
                     absl::StrCat("a row beyond the length limit of sequence ", id));
      // While suspects run alone, the others wait.
      if (suspects_ > 0) return;
      const bool moves = decodes || complete || !shard_->IsRunning(slot);
      if (!moves) still.push_back(id);
      WEFT_CHECK_MSG(shard_->IsRunning(slot) || !plan.chunks.empty(), "no prompt advances");
    } else if (live_.count(id) == 1) {
      victims.push_back(id);
    }
  });
  // A row stands still only when nobody else may be preempted.
  report_.stood_still += still.size();
  for (const SequenceId id : still) {
    for (const SequenceId other : kept) {
      WEFT_CHECK_MSG(other == id || standing_.at(other).is_kept,
                     absl::StrCat("running sequence ", id, " stands still"));
    }
  }
  CheckVictims(kept, victims);
  // Nobody is admitted in a step that preempts.
  for (const PlannedChunk& chunk : plan.chunks) WEFT_CHECK(victims.empty() || !chunk.first);
}

void World::CheckVictims(const std::vector<SequenceId>& kept,
                         const std::vector<SequenceId>& victims) {
  for (const SequenceId victim : victims) {
    live_.at(victim).preempted = true;
    WEFT_CHECK_MSG(std::any_of(kept.begin(), kept.end(),
                               [&](SequenceId other) { return Outranks(other, victim); }),
                   "the first by turn was preempted");
    const Standing& left = standing_.at(victim);
    report_.kept_from_preemption += std::any_of(kept.begin(), kept.end(), [&](SequenceId other) {
      return standing_.at(other).is_kept && Outranks(victim, other);
    });
    // A suspect that runs alone takes from the last by turn, whoever that is.
    if (suspects_ > 0) continue;
    WEFT_CHECK_MSG(!left.is_kept, "one that was just let in was preempted");
    for (const SequenceId other : kept) {
      const Standing& stays = standing_.at(other);
      const bool first = std::all_of(kept.begin(), kept.end(), [&](SequenceId third) {
        return third == other || Outranks(other, third);
      });
      const bool by_order =
          stays.served != left.served ? stays.served < left.served : Outranks(other, victim);
      WEFT_CHECK_MSG(by_order || first || stays.is_kept, "not the last in order was preempted");
    }
  }
}

void World::CheckTrial(const Flight& flight) const {
  const SchedulerStats stats = scheduler_->Stats();
  if (stats.suspects == 0) return;
  std::set<SequenceId> ids(flight.ids.begin(), flight.ids.end());
  for (const Flight& ahead : in_flight_) ids.insert(ahead.ids.begin(), ahead.ids.end());
  bool suspect = false;
  for (const SequenceId id : ids) {
    suspect |= live_.count(id) == 1 && scheduler_->IsSuspectForTest(id);
  }
  WEFT_CHECK_MSG(!suspect || ids.size() == 1, "a suspect shares its steps");
}

void World::CheckBudget(const StepPlan& plan) const {
  uint32_t prompt_tokens = 0;
  for (const PlannedChunk& chunk : plan.chunks) {
    WEFT_CHECK_GT(chunk.count, 0u);
    prompt_tokens += chunk.count;
  }
  WEFT_CHECK_LE(plan.chunks.size(), kChunksPerStepMax);
  WEFT_CHECK_LE(plan.decode_slots.size() + prompt_tokens, config_.step_tokens_max);
  // The microsecond budget gives way to a prompt's minimum and to a recovery.
  if (plan.target_us == 0 || plan.chunks.size() != 1) return;
  for (const auto& [id, request] : live_) {
    if (request.recovering) return;
  }
  if (plan.decode_slots.empty() || prompt_tokens <= config_.block_tokens) return;
  WEFT_CHECK_LE(plan.predicted_us, plan.target_us);
}

void World::CheckAdmissions(const StepPlan& plan) const {
  std::set<SequenceId> holders;
  shard_->ForEachSlot([&](Slot slot, SequenceId id) {
    if (std::find(plan.drops.begin(), plan.drops.end(), slot) == plan.drops.end()) {
      holders.insert(id);
    }
  });
  const size_t before = holders.size();
  for (const PlannedChunk& chunk : plan.chunks) {
    WEFT_CHECK_EQ(chunk.first, holders.insert(chunk.id).second);
    const Request& request = live_.at(chunk.id);
    if (!chunk.first) continue;
    WEFT_CHECK_MSG(request.rows_in_flight == 0, "prefilled again with a row in flight");
    if (chunk.count < request.log.size() - chunk.start) ++report_.chunked_prompts;
  }
  if (holders.size() == before) return;
  for (const auto& [id, request] : live_) {
    if (holders.count(id) == 1 || suspects_ > 0) continue;
    for (const PlannedChunk& chunk : plan.chunks) {
      if (!chunk.first) continue;
      const Request& admitted = live_.at(chunk.id);
      if (admitted.tenant != request.tenant) continue;
      WEFT_CHECK_MSG(
          admitted.priority >= request.priority || Outranks(chunk.id, id) || admitted.ran_when_lost,
          "a lower priority was admitted before its turn");
    }
  }
  const SchedulerStats stats = scheduler_->Stats();
  const uint32_t watermark = (kv_blocks_ * config_.watermark_permille + 999) / 1000;
  if (holders.size() >= 2) {
    WEFT_CHECK_MSG(stats.blocks_total - stats.blocks_used >= watermark, "below the watermark");
  }
}

void World::CheckEmitted(const std::vector<Emitted>& emitted, const std::vector<SampledRow>& rows) {
  for (const Emitted& e : emitted) {
    const auto it = live_.find(e.id);
    WEFT_CHECK_MSG(it != live_.end(), "a token for an ended sequence");
    Request& request = it->second;
    WEFT_CHECK_EQ(rows.at(e.row).token, e.token);
    const auto position = static_cast<Position>(request.log.size());
    WEFT_CHECK_MSG(e.token == MockShard::TokenAt(request.mock.seed, position),
                   absl::StrCat("a wrong token at ", position, " of sequence ", e.id));
    request.log.push_back(e.token);
  }
}

void World::CheckEnded(const std::vector<Ended>& ended) {
  for (const Ended& end : ended) {
    const auto it = live_.find(end.id);
    WEFT_CHECK_MSG(it != live_.end(), "a sequence ended twice");
    const Request& request = it->second;
    const bool eos = request.log.size() > request.prompt_length && request.log.back() == 0 &&
                     !request.ignore_eos;
    if (end.reason == EndReason::kEosToken) {
      WEFT_CHECK(eos);
    } else if (end.reason == EndReason::kLength) {
      WEFT_CHECK(!eos && request.log.size() == request.length_limit);
    }
    WEFT_CHECK(!scheduler_->IsLive(end.id));
    live_.erase(it);
  }
}

void World::CheckAfterEvent() {
  if (check_invariants_) scheduler_->CheckInvariantsForTest();
  const SchedulerStats stats = scheduler_->Stats();
  WEFT_CHECK_EQ(stats.running + stats.waiting, live_.size());
  for (const auto& [id, request] : live_) {
    WEFT_CHECK_EQ(scheduler_->Log(id).size(), request.log.size());
  }
}

void World::CheckAtEnd() const {
  const SchedulerStats stats = scheduler_->Stats();
  WEFT_CHECK(live_.empty());
  WEFT_CHECK_EQ(stats.running + stats.waiting, 0u);
  WEFT_CHECK_EQ(stats.blocks_used, 0u);
  shard_->ForEachSlot([](Slot, SequenceId) { WEFT_CHECK_MSG(false, "a slot was never dropped"); });
  report_.preemptions += stats.preemptions;
  report_.prefix_hit_tokens += stats.prefix_hit_tokens;
  report_.evicted_blocks += stats.evicted_blocks;
  const MockShard::WindowReport& windows = shard_->window_report();
  report_.blocks_left += windows.left;
  report_.window_hits += windows.hits;
  report_.rolled += windows.rolled;
  report_.came_back += windows.came_back;
}

}  // namespace weft::router

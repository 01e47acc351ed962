// One step: decode rows first, then prompt chunks into what is left of the budget.

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {
namespace {

// Waiting sequences behind a long head that are looked at for a short one.
constexpr int kLookAheadMax = 8;

// Bounds predictions, far above any step, so that they are whole microseconds.
constexpr double kStepUsMax = 1e9;

}  // namespace

const StepPlan* Scheduler::Impl::Plan() {
  // Two steps ahead at most (invariant ahead.two).
  if (!formed_ || in_flight_count_ == kStepsInFlightMax) return nullptr;
  BeginPlan();
  if (suspects_ == 0 || !PlanTrial()) {
    PlanDecodeRows();
    PlanChunks();
  }
  return FinishPlan();
}

void Scheduler::Impl::BeginPlan() {
  plan_.drops.clear();
  plan_.blocks.clear();
  plan_.block_ids.clear();
  plan_.chunks.clear();
  plan_.skip_slots.clear();
  plan_.decode_slots.clear();
  plan_.target_us = 0;
  row_slots_.Clear();
  shape_ = {};
  preempted_ = false;
  chunk_count_ = 0;
}

void Scheduler::Impl::PlanDecodeRows() {
  // Whoever loses its place does so before any row is planned.
  MakeRoomForRows();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->phase == Phase::kDecoding) PlanDecodeRow(running_[i]);
  }
}

void Scheduler::Impl::PlanDecodeRow(Sequence* s) {
  // Its last token may already be on its way (invariant ahead.count).
  if (s->planned_length() >= s->length_limit) return;
  LeaveBehind(s, s->computed, s->computed + 1, /*all=*/false);
  if (NeedsBlock(*s)) {
    // All the others were just let in: this one stands still until one of them may go.
    if (pool_.free_count() < groups_.count()) return;
    TakeBlocks(s);
  }
  Tell(s);
  row_slots_.Insert(s->slot);
  ++s->computed;
  ++s->samples_in_flight;
  ++shape_.rows;
  shape_.context_tokens += s->computed;
}

void Scheduler::Impl::PlanChunks() {
  prefilling_.clear();
  for (Sequence* const s : running_) {
    if (s->phase == Phase::kPrefilling) prefilling_.push_back(s);
  }
  // The leader is the first by turn of the prompts under way and of the one that goes next.
  Sequence* const doors = waiting_.DoorContext();
  if (doors != nullptr && (prefilling_.empty() || doors->Outranks(*prefilling_[0])) &&
      TryAdmit(doors)) {
    prefilling_.insert(prefilling_.begin(), doors);
  }
  if (prefilling_.empty()) return;
  Sequence* const leader = prefilling_[0];
  uint32_t budget = ChunkBudget(*leader);
  Grant(leader, budget - budget / 2, &budget);
  if (leader->granted < leader->rest()) GrantOthers(*leader, &budget);
  // What they leave goes to the prompts under way by turn, then to the queue.
  for (Sequence* const s : prefilling_) Grant(s, budget, &budget);
  while (budget > 0) {
    Sequence* const next = waiting_.DoorContext();
    if (next == nullptr || !TryAdmit(next)) break;
    prefilling_.push_back(next);
    Grant(next, budget, &budget);
  }
  for (Sequence* const s : prefilling_) {
    if (s->granted > 0) PlanChunk(s);
  }
}

uint32_t Scheduler::Impl::ChunkBudget(const Sequence& leader) {
  const uint32_t tokens_max = config_.step_tokens_max - shape_.rows;
  // Nobody is held up when nothing decodes; after a lost group the streams that still stand still
  // are held up longest.
  if (shape_.rows == 0 || recovering_ > 0) return tokens_max;
  plan_.target_us = config_.inter_token_target_us;
  if (plan_.target_us == 0) plan_.target_us = SharedStepUs();
  const uint32_t within =
      cost_.PromptTokensWithin(shape_, leader.computed, tokens_max, plan_.target_us);
  // A prompt advances in every step, whatever the target.
  return std::max(within, std::min(tokens_max, config_.block_tokens));
}

uint32_t Scheduler::Impl::SharedStepUs() const {
  // Those that no slot is free for cannot begin, however long this step lasts.
  const size_t can_begin = std::min<size_t>(waiting_.size(), config_.running_max - running_.size());
  const auto prompts = static_cast<double>(prefilling_.size() + can_begin);
  return static_cast<uint32_t>(std::min(cost_.StepUs(shape_) * (1 + prompts), kStepUsMax));
}

void Scheduler::Impl::Grant(Sequence* sequence, uint32_t tokens, uint32_t* budget) {
  const uint32_t granted = std::min({tokens, *budget, sequence->rest() - sequence->granted});
  if (granted == 0) return;
  if (sequence->granted == 0) {
    if (chunk_count_ == kChunksPerStepMax) return;
    ++chunk_count_;
  }
  sequence->granted += granted;
  *budget -= granted;
}

void Scheduler::Impl::GrantOthers(const Sequence& leader, uint32_t* budget) {
  // Short: at most half of what the leader has left, so that prompts of one length keep their
  // order.
  const uint32_t short_max = leader.rest() / 2;
  for (size_t i = 1; i < prefilling_.size(); ++i) {
    Sequence* const s = prefilling_[i];
    if (s->tenant != leader.tenant || s->rest() <= short_max) Grant(s, *budget, budget);
  }
  Sequence* const doors = waiting_.DoorContext();
  Sequence* next = doors;
  int32_t passed_priority = -kPriorityAbsMax;
  for (int looked = 0; looked < kLookAheadMax; ++looked) {
    if (next == nullptr || *budget == 0) return;
    Sequence* const candidate = next;
    next = waiting_.After(*candidate);
    // Who goes next need not be short when its tenant is not the leader's. Short sequences pass
    // those before them (counted without prefix hits, which are not known yet), unless one of
    // these has a higher priority.
    const bool others_turn = candidate == doors && candidate->tenant != leader.tenant;
    const bool is_short = candidate->log.size() <= short_max;
    if (!others_turn && (!is_short || candidate->priority < passed_priority)) {
      passed_priority = std::max(passed_priority, candidate->priority);
      continue;
    }
    if (!TryAdmit(candidate)) return;
    prefilling_.push_back(candidate);
    Grant(candidate, *budget, budget);
  }
}

void Scheduler::Impl::PlanChunk(Sequence* s) {
  PlannedChunk chunk;
  chunk.id = s->id;
  chunk.slot = s->slot;
  chunk.start = s->computed;
  chunk.count = s->granted;
  chunk.first = s->first_chunk;
  s->first_chunk = false;
  LeaveBehind(s, s->computed, s->computed + s->granted, /*all=*/false);
  Tell(s);
  s->computed += s->granted;
  s->prompt_reached = std::max(s->prompt_reached, std::min(s->computed, s->prompt_length));
  s->granted = 0;
  chunk.last = s->computed == s->log.size();
  if (chunk.last) {
    s->phase = Phase::kDecoding;
    ++s->samples_in_flight;
    CaughtUp(s);
  }
  plan_.chunks.push_back(chunk);
  shape_.prompt_tokens += chunk.count;
  shape_.context_tokens += s->computed;
}

const StepPlan* Scheduler::Impl::FinishPlan() {
  if (shape_.rows == 0 && plan_.chunks.empty() && drops_.empty()) return nullptr;
  plan_.step = next_step_++;
  plan_.kind = !plan_.chunks.empty() ? StepKind::kPrefill
               : shape_.rows > 0     ? StepKind::kDecode
                                     : StepKind::kFilter;
  // Whoever left blocks and stands still all the same.
  if (untold_ > 0 && plan_.kind != StepKind::kFilter) {
    for (Sequence* const s : running_) Tell(s);
  }
  plan_.with_decode = shape_.rows > 0;
  plan_.predicted_us = plan_.kind == StepKind::kFilter
                           ? 0
                           : static_cast<uint32_t>(std::min(cost_.StepUs(shape_), kStepUsMax));
  // Whatever was given back until now, in this plan too, is dropped before the rows run
  // (invariant wire.once).
  plan_.drops.swap(drops_);
  drops_.clear();

  StepInFlight& record = InFlight(in_flight_count_++);
  record.step = plan_.step;
  record.shape = shape_;
  record.rows.clear();
  const auto add_row = [&](Slot slot, bool samples) {
    Sequence* const s = slots_[slot];
    ++s->steps_in_flight;
    record.rows.push_back({s->id, slot, s->computed, samples});
  };
  decoding_slots_.ForEach([&](Slot slot) {
    if (row_slots_.Contains(slot)) {
      plan_.decode_slots.push_back(slot);
      add_row(slot, true);
    } else if (plan_.with_decode) {
      plan_.skip_slots.push_back(slot);
    }
  });
  for (const PlannedChunk& chunk : plan_.chunks) {
    add_row(chunk.slot, chunk.last);
    if (chunk.last) decoding_slots_.Insert(chunk.slot);
  }
  return &plan_;
}

}  // namespace weft::router

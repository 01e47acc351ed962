#include "tests/sim/scale/replica.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "tests/sim/scale/step_cost.h"

namespace weft::router::scale {
namespace {

AdmissionLimits Limits() {
  AdmissionLimits limits;
  limits.running_max = kRunningDefaultCuda;
  return limits;
}

// As a text of so many tokens weighs.
constexpr size_t kBytesPerToken = 4;

}  // namespace

SchedulerConfig ReplicaConfig(uint32_t inter_token_target_us) {
  SchedulerConfig config;
  config.inter_token_target_us = inter_token_target_us;
  config.running_max = kRunningDefaultCuda;
  config.step_tokens_max = kStepTokensDefaultCuda;
  config.block_tokens = kBlockTokens;
  config.context_tokens_max = 131072;
  config.hash_key[0] = 1;
  config.label_ids = true;
  config.eos_ids = {0};
  return config;
}

Replica::Replica(const ManualClock* clock, absl::Span<const TenantRef> tenants,
                 uint32_t inter_token_target_us)
    : clock_(clock),
      tenants_(tenants),
      admission_(Limits(), clock),
      scheduler_(ReplicaConfig(inter_token_target_us)),
      slots_(kRunningDefaultCuda) {
  GroupInfo group;
  group.epoch = 1;
  group.kv_blocks = kPoolTokens / kBlockTokens;
  group.costs = WarmupCosts();
  scheduler_.OnGroupFormed(group, clock_->NowUs(), &ended_);
  admission_.SetRequestTokensMax(131072);
}

ReplicaLoad Replica::Load() const {
  const SchedulerStats stats = scheduler_.Stats();
  ReplicaLoad load;
  load.running_max = kRunningDefaultCuda;
  load.running = stats.running;
  load.waiting = stats.waiting;
  load.used_tokens = uint64_t{stats.blocks_used} * kBlockTokens;
  load.waiting_tokens = waiting_tokens_;
  load.pool_tokens = kPoolTokens;
  load.received_tokens = received_tokens_;
  return load;
}

void Replica::Arrive(const TraceRequest& request, std::vector<Outcome>* outcomes) {
  const int64_t now_us = clock_->NowUs();
  const auto refuse = [&] {
    Outcome outcome;
    outcome.tenant = request.tenant;
    outcome.refused = true;
    outcome.arrival_us = outcome.end_us = now_us;
    outcomes->push_back(outcome);
  };
  absl::StatusOr<Admission::Permit> permit =
      admission_.Enter(tenants_[request.tenant], request.prompt_tokens * kBytesPerToken);
  if (!permit.ok() || !permit->AddTokens(request.prompt_tokens).ok()) return refuse();
  permit->ReleaseTextBytes();
  Arrival arrival;
  arrival.id = ++last_id_;
  arrival.prompt = scheduler_.prefix_hasher().Hash(PromptOf(request), 1);
  arrival.max_new_tokens = request.output_tokens;
  arrival.tenant = request.tenant;
  arrival.ignore_eos = true;
  WEFT_CHECK(scheduler_.OnArrival(std::move(arrival), now_us).ok());
  waiting_tokens_ += request.prompt_tokens;
  received_tokens_ += request.prompt_tokens;
  auto live = std::make_unique<Live>();
  live->request = request;
  live->permit = *std::move(permit);
  live_.emplace(last_id_, std::move(live));
  PlanSteps();
}

void Replica::PlanSteps() {
  while (in_flight_.size() < kStepsInFlightMax) {
    const StepPlan* const plan = scheduler_.Plan(clock_->NowUs());
    if (plan == nullptr) return;
    in_flight_.push_back(Launch(*plan));
  }
}

Replica::Flight Replica::Launch(const StepPlan& plan) {
  Flight flight;
  flight.step = plan.step;
  flight.rows.reserve(plan.decode_slots.size() + plan.chunks.size());
  double context = 0;
  double pairs = 0;
  uint32_t tokens = 0;
  for (const Slot slot : plan.decode_slots) {
    SlotState& state = slots_[slot];
    flight.rows.push_back({slot, TokenAt(state.live->request, state.position)});
    context += ++state.position;
    ++tokens;
  }
  for (const PlannedChunk& chunk : plan.chunks) {
    SlotState& state = slots_[chunk.slot];
    if (chunk.first) {
      state.live = live_.at(chunk.id).get();
      // Once: it may be preempted and come back.
      if (!std::exchange(state.live->has_run, true)) {
        state.live->permit.MarkRunning();
        waiting_tokens_ -= state.live->request.prompt_tokens;
      }
    }
    tokens += chunk.count;
    pairs += chunk.count * (chunk.start + 0.5 * chunk.count);
    if (!chunk.last) continue;
    state.position = chunk.start + chunk.count;
    flight.rows.push_back({chunk.slot, TokenAt(state.live->request, state.position)});
    ++state.position;
    if (state.live->first_token_us < 0) flight.first.push_back(chunk.id);
  }
  const double us = tokens == 0 ? 1 : StepUs(tokens, context, pairs);
  flight.device_us = static_cast<uint32_t>(std::llround(us));
  const int64_t start_us =
      in_flight_.empty() ? clock_->NowUs() : std::max(clock_->NowUs(), in_flight_.back().done_us);
  flight.done_us = start_us + flight.device_us;
  return flight;
}

void Replica::Answer(std::vector<Outcome>* outcomes) {
  const int64_t now_us = clock_->NowUs();
  const Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  ++steps_;
  rows_ += flight.rows.size();
  busy_us_ += flight.device_us;
  for (const SequenceId id : flight.first) {
    Live& live = *live_.at(id);
    live.first_token_us = now_us;
    live.cached_tokens = scheduler_.CachedTokens(id);
  }
  emitted_.clear();
  ended_.clear();
  scheduler_.OnStepDone(flight.step, flight.rows, {flight.device_us}, now_us, &emitted_, &ended_);
  for (const Ended& end : ended_) {
    WEFT_CHECK(end.reason == EndReason::kLength);
    const auto found = live_.find(end.id);
    Live& live = *found->second;
    Outcome outcome;
    outcome.tenant = live.request.tenant;
    outcome.prompt_tokens = live.request.prompt_tokens;
    outcome.output_tokens = live.request.output_tokens;
    outcome.cached_tokens = live.cached_tokens;
    outcome.seen_tokens = live.request.seen_tokens;
    outcome.arrival_us = live.request.arrival_us;
    outcome.first_token_us = live.first_token_us;
    outcome.end_us = now_us;
    outcomes->push_back(outcome);
    live_.erase(found);
  }
  PlanSteps();
}

}  // namespace weft::router::scale

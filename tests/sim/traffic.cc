#include "tests/sim/traffic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"

namespace weft::router {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

Traffic::Traffic(const SchedulerConfig& config, uint32_t kv_blocks, const StepCost& cost,
                 std::vector<Load> loads, uint64_t seed)
    : scheduler_(config),
      cost_(cost),
      loads_(std::move(loads)),
      reports_(loads_.size()),
      waiting_(loads_.size(), 0),
      random_(seed) {
  for (const Load& load : loads_) next_us_.push_back(load.backlog > 0 ? kNever : load.interval_us);
  GroupInfo group;
  group.kv_blocks = kv_blocks;
  std::vector<Ended> ended;
  scheduler_.OnGroupFormed(group, 0, &ended);
}

SequenceId Traffic::ArriveNow(size_t load, int32_t priority) {
  const Load& from = loads_[load];
  std::vector<TokenId> ids(Between(from.prompt_min, from.prompt_max));
  for (TokenId& id : ids) id = 1 + static_cast<TokenId>(random_() % 50000);
  Arrival arrival;
  arrival.id = ++last_id_;
  arrival.prompt = Prompt(std::move(ids));
  arrival.max_new_tokens = Between(from.output_min, from.output_max);
  arrival.tenant = from.tenant;
  arrival.tenant_weight = from.weight;
  arrival.priority = priority;
  WEFT_CHECK(scheduler_.OnArrival(std::move(arrival), now_us_).ok());
  requests_.emplace(last_id_, Request{load, now_us_});
  ++waiting_[load];
  ++reports_[load].arrived;
  return last_id_;
}

void Traffic::FillBacklogs() {
  for (size_t i = 0; i < loads_.size(); ++i) {
    while (waiting_[i] < loads_[i].backlog) ArriveNow(i, loads_[i].priority);
  }
}

int64_t Traffic::NextArrivalUs() const {
  return next_us_.empty() ? kNever : *std::min_element(next_us_.begin(), next_us_.end());
}

void Traffic::Run(int64_t until_us) {
  while (now_us_ < until_us) {
    FillBacklogs();
    PlanSteps();
    const int64_t done_us = in_flight_.empty() ? kNever : in_flight_.front().done_us;
    const int64_t arrival_us = NextArrivalUs();
    now_us_ = std::min({done_us, arrival_us, until_us});
    if (now_us_ == done_us) Answer();
    for (size_t i = 0; i < loads_.size(); ++i) {
      if (next_us_[i] > now_us_) continue;
      ArriveNow(i, loads_[i].priority);
      // Exponential: arrivals know nothing of each other.
      const double uniform = (1.0 + static_cast<double>(random_() >> 12)) / std::ldexp(1.0, 52);
      next_us_[i] = now_us_ + 1 + std::llround(-std::log(uniform) * loads_[i].interval_us);
    }
  }
}

void Traffic::PlanSteps() {
  while (in_flight_.size() < kStepsInFlightMax) {
    const StepPlan* const plan = scheduler_.Plan(now_us_);
    if (plan == nullptr) return;
    int64_t us = cost_.step_us + cost_.row_us * static_cast<int64_t>(plan->decode_slots.size());
    for (const PlannedChunk& chunk : plan->chunks) {
      us += cost_.prompt_token_us * chunk.count;
      Request& request = requests_.at(chunk.id);
      LoadReport& report = reports_[request.load];
      if (!request.let_in) {
        request.let_in = true;
        let_in_order_.push_back(chunk.id);
        --waiting_[request.load];
        const int64_t queue_us = now_us_ - request.arrival_us;
        report.mean_queue_us +=
            (static_cast<double>(queue_us) - report.mean_queue_us) / ++report.let_in;
        report.max_queue_us = std::max(report.max_queue_us, queue_us);
      }
      const uint32_t reached =
          std::min(chunk.start + chunk.count, scheduler_.PromptLength(chunk.id));
      if (reached > request.reached) {
        report.tokens += reached - request.reached;
        request.reached = reached;
      }
    }
    const int64_t start_us = in_flight_.empty() ? now_us_ : in_flight_.back().done_us;
    in_flight_.push_back({*plan, start_us + us});
  }
}

void Traffic::Answer() {
  const Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::vector<SampledRow> rows;
  for (const Slot slot : flight.plan.decode_slots) rows.push_back({slot, 7});
  int64_t us = cost_.step_us + cost_.row_us * static_cast<int64_t>(rows.size());
  for (const PlannedChunk& chunk : flight.plan.chunks) {
    us += cost_.prompt_token_us * chunk.count;
    if (chunk.last) rows.push_back({chunk.slot, 7});
  }
  std::vector<Emitted> emitted;
  std::vector<Ended> ended;
  scheduler_.OnStepDone(flight.plan.step, rows, {static_cast<uint32_t>(us)}, now_us_, &emitted,
                        &ended);
  for (const Emitted& e : emitted) ++reports_[requests_.at(e.id).load].tokens;
  for (const Ended& end : ended) requests_.erase(end.id);
}

}  // namespace weft::router

#include "tests/sim/world.h"

#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "router/scheduler/kv_groups.h"

namespace weft::router {
namespace {

// Events without any progress after which the simulation gives up: a deadlock.
constexpr int kIdleEventsMax = 10000;

}  // namespace

World::World(uint64_t seed, uint32_t requests, const SimulationOptions& options,
             SimulationReport* report)
    : random_(seed),
      requests_left_(requests),
      check_invariants_(options.check_invariants),
      report_(*report) {
  ChooseConfig();
  if (options.kv_windows) ChooseWindows();
  ChoosePool();
  scheduler_ = std::make_unique<Scheduler>(config_);
  if (options.on_scheduler) options.on_scheduler(config_, scheduler_.get());
  shard_ = std::make_unique<MockShard>(config_);
}

void World::ChooseConfig() {
  config_.running_max = 1 + Random(Chance(80) ? 16 : 48);
  config_.ageing_us = Random(20000);
  tenants_ = Chance(40) ? 1 : 1 + Random(5);
  config_.step_tokens_max = config_.running_max + Random(Chance(50) ? 12 : 64);
  config_.block_tokens = uint32_t{1} << Random(5);
  length_max_ = 16 + Random(100);
  config_.context_tokens_max = length_max_;
  config_.watermark_permille = Chance(50) ? 10 : Random(200);
  config_.inter_token_target_us = Chance(50) ? 0 : 1000 + Random(4000);
  config_.prefix_cache = !Chance(15);
  config_.hash_key[0] = random_();
  config_.hash_key[1] = random_();
  config_.eos_ids = {0};
}

void World::ChooseWindows() {
  config_.kv_windows.clear();
  for (uint64_t groups = 1 + Random(4); groups > 0; --groups) {
    // Whole contexts, windows of less than a block or a chunk, and windows that no sequence fills.
    config_.kv_windows.push_back(Chance(30) ? 0 : 1 + Random(Chance(60) ? 12 : length_max_));
  }
  // Small chunks, so that prompts are longer than a window and a chunk.
  if (Chance(50)) config_.step_tokens_max = config_.running_max + Random(4);
}

void World::ChoosePool() {
  // From a pool that holds one long sequence to one that holds all.
  const KvGroups groups(config_.kv_windows, config_.block_tokens, config_.step_tokens_max);
  const auto sequence_blocks = static_cast<uint32_t>(
      groups.SequenceMax((length_max_ + config_.block_tokens - 1) / config_.block_tokens));
  kv_blocks_ = sequence_blocks + Random(1 + sequence_blocks * (1 + Random(config_.running_max)));
  // With windows a pool of a few sequences' blocks holds many: without this hardly one would end.
  if (groups.any_window() && Chance(60)) kv_blocks_ = sequence_blocks + Random(sequence_blocks);
  live_max_ = 1 + Random(4 * config_.running_max);
  for (int i = 0; i < 4; ++i) {
    std::vector<TokenId> prefix(Random(length_max_ / 2));
    for (TokenId& id : prefix) id = 1 + Random(3);
    prefixes_.push_back(prefix);
  }
}

void World::Run() {
  int idle_events = 0;
  while (requests_left_ > 0 || !live_.empty()) {
    ++report_.events;
    now_us_ += Random(2000);
    const uint64_t progress = report_.steps + report_.tokens + requests_left_ + live_.size();
    const uint64_t choice = Random(1000);
    if (!formed_ && choice < 300) {
      FormGroup();
    } else if (choice < 3) {
      LoseGroup();
    } else if (choice < 6) {
      Flush();
    } else if (choice < 250) {
      Arrive();
    } else if (choice < 300) {
      Cancel();
    } else if (choice < 650) {
      PlanStep();
    } else {
      AnswerStep();
    }
    CheckAfterEvent();
    const bool moved = progress != report_.steps + report_.tokens + requests_left_ + live_.size();
    idle_events = moved ? 0 : idle_events + 1;
    WEFT_CHECK_MSG(idle_events < kIdleEventsMax, "nothing moves any more");
  }
  while (!in_flight_.empty()) AnswerStep();
  if (!formed_) FormGroup();
  PlanStep();
  CheckAfterEvent();
  CheckAtEnd();
}

void World::FormGroup() {
  GroupInfo group;
  group.epoch = ++epoch_;
  group.kv_blocks = kv_blocks_;
  const GroupInfo::Cost costs[] = {{1, 0, 8, 500}, {0, 32, 32, 2000}};
  if (Chance(70)) group.costs = costs;
  shard_->Reset(kv_blocks_);
  planned_ = answered_ = 0;
  formed_ = true;
  std::vector<Ended> ended;
  scheduler_->OnGroupFormed(group, now_us_, &ended);
  WEFT_CHECK(ended.empty());
}

void World::LoseGroup() {
  if (!formed_) return;
  ++report_.groups_lost;
  formed_ = false;
  for (auto& [id, request] : live_) request.losses += request.rows_in_flight > 0;
  in_flight_.clear();
  shard_->ForEachSlot([&](Slot, SequenceId id) {
    if (live_.count(id) == 1) live_.at(id).recovering = live_.at(id).ran_when_lost = true;
  });
  for (auto& [id, request] : live_) {
    request.rows_in_flight = request.samples_in_flight = 0;
    request.preempted = false;
  }
  shard_->Reset(kv_blocks_);
  std::vector<Ended> ended;
  scheduler_->OnGroupLost(now_us_, &ended);
  for (const Ended& end : ended) {
    WEFT_CHECK(end.reason == EndReason::kGroupLosses);
    const Request& request = live_.at(end.id);
    WEFT_CHECK_GE(request.losses, kGroupLossesMax);
    request.poison > 0 ? ++report_.poisoned : ++report_.unlucky;
  }
  CheckEnded(ended);
}

void World::Arrive() {
  if (requests_left_ == 0 || live_.size() >= live_max_) return;
  --requests_left_;
  const SequenceId id = next_id_++;
  Request& request = live_[id];
  request.mock.seed = Random(1000);
  request.tenant = static_cast<TenantIndex>(Random(tenants_));
  request.mock.cache_salt = Chance(80) ? 0 : 1;
  request.priority = static_cast<int32_t>(Random(10)) - 5;
  if (Chance(70)) request.priority = 0;
  request.turn_us = now_us_ - request.priority * config_.ageing_us;
  request.ignore_eos = Chance(20);
  // Half of the prompts are short, so that sequences grow and meet the end of the pool.
  if (Chance(50)) request.log = prefixes_[Random(prefixes_.size())];
  const uint64_t more_max = length_max_ - 1 - request.log.size();
  for (uint64_t i = Random(Chance(50) ? more_max : std::min<uint64_t>(more_max, 8)); i > 0; --i) {
    request.log.push_back(1 + Random(3));
  }
  if (request.log.empty()) request.log.push_back(1);
  request.prompt_length = static_cast<uint32_t>(request.log.size());
  request.length_limit = request.prompt_length + 1 + Random(length_max_ - request.prompt_length);
  if (Chance(1)) request.poison = 1 + Random(request.length_limit - 1);

  Arrival arrival;
  arrival.id = id;
  // A third is hashed elsewhere, a third with other settings, a third not at all.
  const uint64_t other_key[2] = {1, 2};
  switch (Random(3)) {
    case 0:
      arrival.prompt = scheduler_->prefix_hasher().Hash(request.log, request.mock.cache_salt);
      break;
    case 1:
      arrival.prompt =
          PrefixHasher(other_key, config_.block_tokens).Hash(request.log, request.mock.cache_salt);
      break;
    default:
      arrival.prompt = Prompt(request.log, request.mock.cache_salt);
  }
  arrival.tenant = request.tenant;
  arrival.tenant_weight = 1 + request.tenant;
  arrival.max_new_tokens = request.length_limit - request.prompt_length;
  arrival.priority = request.priority;
  arrival.ignore_eos = request.ignore_eos;
  arrival.bypass_prefix_cache = Chance(10);
  WEFT_CHECK(scheduler_->OnArrival(std::move(arrival), now_us_).ok());
}

void World::Cancel() {
  // Often somebody who has ended already, or never came.
  const SequenceId id = next_id_ - std::min<SequenceId>(next_id_, Random(3 * live_max_));
  const auto it = live_.find(id);
  std::vector<Ended> ended;
  scheduler_->OnCancel(id, now_us_, &ended);
  WEFT_CHECK_MSG(ended.size() == (it == live_.end() ? 0 : 1), "a cancel was lost");
  if (ended.empty()) return;
  WEFT_CHECK(ended[0].id == id && ended[0].reason == EndReason::kCancelled);
  ++report_.cancelled;
  if (it->second.samples_in_flight > 0) {
    ++report_.cancelled_in_flight;
  } else if (it->second.rows_in_flight > 0) {
    ++report_.cancelled_mid_prompt;
  }
  CheckEnded(ended);
}

void World::Flush() {
  const SchedulerStats before = scheduler_->Stats();
  scheduler_->OnFlush(now_us_);
  const SchedulerStats after = scheduler_->Stats();
  WEFT_CHECK_MSG(after.blocks_cached == 0, "a flush left a cached prefix");
  WEFT_CHECK_MSG(after.blocks_used == before.blocks_used, "a flush took a sequence's block");
  WEFT_CHECK_EQ(after.running, before.running);
  WEFT_CHECK_EQ(after.waiting, before.waiting);
  ++report_.flushes;
  report_.flushed_blocks += before.blocks_cached;
}

void World::PlanStep() {
  suspects_ = scheduler_->Stats().suspects;
  standing_.clear();
  shard_->ForEachSlot([&](Slot, SequenceId id) {
    if (live_.count(id) == 0) return;
    standing_[id] = {scheduler_->ServedForTest(id), scheduler_->IsKeptForTest(id)};
  });
  const StepPlan* const plan = scheduler_->Plan(now_us_);
  if (!formed_ || in_flight_.size() == kStepsInFlightMax) {
    WEFT_CHECK_MSG(plan == nullptr, "more than two steps in flight");
    return;
  }
  if (plan == nullptr) {
    WEFT_CHECK_MSG(live_.empty() || !in_flight_.empty(), "nothing is planned and nothing runs");
    // What has ended was dropped.
    shard_->ForEachSlot([&](Slot, SequenceId id) {
      WEFT_CHECK_MSG(live_.count(id) == 1, "an ended sequence stays on the shard");
    });
    return;
  }
  ++report_.steps;
  CheckPlan(*plan);
  Flight flight;
  flight.plan = *plan;
  shard_->ForEachSlot([&](Slot slot, SequenceId id) {
    if (std::binary_search(plan->decode_slots.begin(), plan->decode_slots.end(), slot) &&
        std::find(plan->drops.begin(), plan->drops.end(), slot) == plan->drops.end()) {
      flight.ids.push_back(id);
      Request& request = live_.at(id);
      const size_t position = request.log.size() + request.samples_in_flight++ - 1;
      flight.poisoned |= request.poison > 0 && position == request.poison;
    }
  });
  for (const PlannedChunk& chunk : plan->chunks) {
    flight.ids.push_back(chunk.id);
    const Position poison = live_.at(chunk.id).poison;
    flight.poisoned |= poison > 0 && poison >= chunk.start && poison < chunk.start + chunk.count;
    live_.at(chunk.id).samples_in_flight += chunk.last;
    live_.at(chunk.id).preempted = false;
    if (chunk.last) live_.at(chunk.id).recovering = false;
  }
  for (const SequenceId id : flight.ids) ++live_.at(id).rows_in_flight;
  CheckTrial(flight);
  flight.rows = shard_->Run(
      *plan, answered_, [this](SequenceId id) { return scheduler_->Log(id); },
      [this](SequenceId id) { return live_.at(id).mock; });
  shard_->ForEachSlot([&](Slot, SequenceId id) {
    WEFT_CHECK_MSG(live_.count(id) == 1, "an ended sequence stays on the shard");
  });
  in_flight_.push_back(std::move(flight));
}

void World::AnswerStep() {
  if (in_flight_.empty()) return;
  if (in_flight_.front().poisoned) return LoseGroup();
  const Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  const StepPlan& plan = flight.plan;
  answered_ = plan.step;
  size_t live_rows = 0;
  for (size_t i = 0; i < flight.ids.size(); ++i) {
    const auto it = live_.find(flight.ids[i]);
    const bool samples =
        i < plan.decode_slots.size() || plan.chunks[i - plan.decode_slots.size()].last;
    if (it == live_.end()) {
      ++report_.rows_in_vain;
      continue;
    }
    --it->second.rows_in_flight;
    it->second.samples_in_flight -= samples;
    live_rows += samples;
    report_.results_after_preemption += samples && it->second.preempted;
  }
  std::vector<Emitted> emitted;
  std::vector<Ended> ended;
  const StepTime time = {static_cast<uint32_t>(300 + 50 * flight.ids.size() + Random(300))};
  scheduler_->OnStepDone(plan.step, flight.rows, time, now_us_, &emitted, &ended);
  WEFT_CHECK_MSG(emitted.size() == live_rows, "a token was lost or counted twice");
  report_.tokens += emitted.size();
  CheckEmitted(emitted, flight.rows);
  for (const Ended& end : ended) {
    WEFT_CHECK(end.reason != EndReason::kCancelled);
    (end.reason == EndReason::kLength ? report_.ended_by_length : report_.ended_by_eos) += 1;
  }
  CheckEnded(ended);
  // Whoever is complete has ended with the same answer.
  for (const Emitted& e : emitted) {
    const auto it = live_.find(e.id);
    if (it == live_.end()) continue;
    WEFT_CHECK_MSG(it->second.log.size() < it->second.length_limit, "the length limit is past");
    WEFT_CHECK_MSG(e.token != 0 || it->second.ignore_eos, "an end of sequence was overlooked");
  }
}

}  // namespace weft::router

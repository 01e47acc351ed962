// A state that a scheduler saved is gone on from; one in which any single thing is otherwise is
// refused in words, before anything relies on it.

#include "router/scheduler/state_check.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/tenant_table.h"

namespace weft::router {
namespace {

constexpr uint32_t kBlocks = 60;
// Of the sequences below.
constexpr SequenceId kShares = 2, kSharesToo = 3, kPrompt = 4, kWaits = 6;

SchedulerConfig Config() {
  SchedulerConfig config;
  config.running_max = 4;
  config.step_tokens_max = 16;
  config.block_tokens = 4;
  config.kv_windows = {0, 8};
  config.context_tokens_max = 64;
  config.watermark_permille = 0;
  config.label_ids = true;
  config.eos_ids = {kNoToken};
  return config;
}

// Label ids: the last one of a block is `first_label` and so on.
Arrival MakeArrival(SequenceId id, uint32_t tokens, uint32_t first_label, TenantIndex tenant) {
  std::vector<TokenId> ids(tokens, 0);
  for (uint32_t i = 3; i < tokens; i += 4) ids[i] = first_label++;
  Arrival arrival;
  arrival.id = id;
  arrival.prompt = Prompt(std::move(ids));
  arrival.max_new_tokens = 20;
  arrival.tenant = tenant;
  return arrival;
}

class World {
 public:
  World() : scheduler_(Config()) {
    GroupInfo group;
    group.kv_blocks = kBlocks;
    scheduler_.OnGroupFormed(group, 0, &ended_);
  }

  void Arrive(Arrival arrival) { REQUIRE(scheduler_.OnArrival(std::move(arrival), ++us_).ok()); }
  void Cancel(SequenceId id) { scheduler_.OnCancel(id, ++us_, &ended_); }
  void Plan() {
    const StepPlan* const plan = scheduler_.Plan(++us_);
    REQUIRE(plan != nullptr);
    rows_.clear();
    for (const Slot slot : plan->decode_slots) rows_.push_back({slot, next_label_++});
    for (const PlannedChunk& chunk : plan->chunks) {
      if (chunk.last) rows_.push_back({chunk.slot, next_label_++});
    }
    step_ = plan->step;
  }
  void PlanAndAnswer() {
    Plan();
    scheduler_.OnStepDone(step_, rows_, {100}, ++us_, &emitted_, &ended_);
  }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  Scheduler scheduler_;
  int64_t us_ = 0;
  TokenId next_label_ = 1000;
  StepNumber step_ = 0;
  std::vector<SampledRow> rows_;
  std::vector<Emitted> emitted_;
  std::vector<Ended> ended_;
};

// Cached blocks and shared ones, a prompt under way, one that waits, two steps in flight, a slot
// that was left since, and a tenant that has nobody any more.
SchedulerState BusyState() {
  World world;
  world.Arrive(MakeArrival(1, 12, 1, /*tenant=*/1));
  for (int i = 0; i < 6; ++i) world.PlanAndAnswer();
  world.Cancel(1);
  world.Arrive(MakeArrival(kShares, 9, 1, /*tenant=*/2));
  world.Arrive(MakeArrival(kSharesToo, 9, 1, /*tenant=*/2));
  world.Arrive(MakeArrival(5, 5, 90, /*tenant=*/2));
  for (int i = 0; i < 3; ++i) world.PlanAndAnswer();
  world.Arrive(MakeArrival(kPrompt, 40, 10, /*tenant=*/3));
  world.Arrive(MakeArrival(kWaits, 8, 30, /*tenant=*/3));
  world.Plan();
  world.Plan();
  world.Cancel(5);
  SchedulerState state;
  world.scheduler().CheckInvariantsForTest();
  world.scheduler().Save(&state);
  return state;
}

absl::Status Check(const SchedulerState& state) {
  const SchedulerConfig config = Config();
  return CheckState(config, KvGroups(config.kv_windows, config.block_tokens, 16), state);
}

SequenceState& Of(SchedulerState& state, SequenceId id) {
  const auto found = std::find_if(state.sequences.begin(), state.sequences.end(),
                                  [id](const SequenceState& s) { return s.id == id; });
  REQUIRE(found != state.sequences.end());
  return *found;
}

// What is changed, and a part of what is said of it.
struct Lie {
  std::string says;
  std::function<void(SchedulerState&)> tell;
};

void CheckRefused(const std::vector<Lie>& lies) {
  const SchedulerState good = BusyState();
  REQUIRE(Check(good) == absl::OkStatus());
  for (size_t i = 0; i < lies.size(); ++i) {
    SchedulerState state = good;
    lies[i].tell(state);
    const absl::Status status = Check(state);
    CAPTURE(i, lies[i].says, status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), lies[i].says));
    CHECK(!Scheduler::Restore(Config(), state).ok());
  }
}

TEST_CASE("A state that a scheduler saved is gone on from", "[state]") {
  const SchedulerState good = BusyState();
  // So that what follows changes something.
  CHECK(good.in_flight.size() == 2);
  CHECK(!good.drops.empty());
  CHECK(!good.cached.empty());
  CHECK(!good.plain.empty());
  REQUIRE(good.sequences.size() == 4);
  CHECK(good.sequences[0].tables[0].blocks[0] == good.sequences[1].tables[0].blocks[0]);
  CHECK(good.sequences[0].phase == Phase::kDecoding);
  CHECK(good.sequences[2].phase == Phase::kPrefilling);
  CHECK(good.sequences[3].phase == Phase::kWaiting);
  REQUIRE(good.tenants.size() == 3);
  CHECK(good.tenants.back().idle);

  CHECK(Check(good) == absl::OkStatus());
  const auto restored = Scheduler::Restore(Config(), good);
  REQUIRE(restored.ok());
  (*restored)->CheckInvariantsForTest();
  SchedulerConfig with_ids = Config();
  with_ids.label_ids = false;
  CHECK(!Scheduler::Restore(with_ids, good).ok());
}

TEST_CASE("A state whose blocks do not make up the pool is refused", "[state]") {
  CheckRefused({
      {"blocks that are nowhere", [](auto& s) { s.kv_blocks = 1u << 31; }},
      {"a block that is nowhere", [](auto& s) { s.plain.pop_back(); }},
      {"a free block twice", [](auto& s) { s.plain[0] = s.plain[1]; }},
      {"a free block twice", [](auto& s) { s.plain[0] = kBlocks; }},
      {"a cached block twice", [](auto& s) { s.cached[0] = s.plain[0]; }},
      {"a cached block without a prefix",
       [](auto& s) {
         std::erase_if(s.published, [&s](const auto& p) { return p.block == s.cached[0]; });
       }},
      {"a prefix in a free block", [](auto& s) { s.published[0].block = s.plain[0]; }},
      {"a prefix in two blocks", [](auto& s) { s.published[1].hash = s.published[0].hash; }},
      {"a block with two prefixes", [](auto& s) { s.published.push_back(s.published[0]); }},
      {"a foreign prefix", [](auto& s) { s.published[0].group = 2; }},
      {"a foreign prefix", [](auto& s) { s.published[0].block = kBlocks; }},
      {"a foreign prefix", [](auto& s) { s.published[0].hash.high = 1; }},
      {"a block that is free",
       [](auto& s) { Of(s, kPrompt).tables[0].blocks[0] = s.plain.back(); }},
      {"a block not in the pool", [](auto& s) { Of(s, kPrompt).tables[0].blocks[0] = kBlocks; }},
      {"a block that another place has",
       [](auto& s) { Of(s, kPrompt).tables[0].blocks[9] = Of(s, kPrompt).tables[0].blocks[8]; }},
      {"a block that another place has",
       [](auto& s) {
         Of(s, kSharesToo).tables[0].blocks.back() = Of(s, kShares).tables[0].blocks.back();
       }},
      {"a block that another place has",
       [](auto& s) {
         SequenceState& twice = Of(s, kSharesToo);
         twice.block_hashes[1] = twice.block_hashes[0];
         twice.tables[0].blocks[1] = twice.tables[0].blocks[0];
       }},
      {"a block with another prefix",
       [](auto& s) { std::swap(Of(s, kShares).block_hashes[0], Of(s, kShares).block_hashes[1]); }},
  });
}

TEST_CASE("A state whose sequences contradict themselves is refused", "[state]") {
  CheckRefused({
      {"out of order", [](auto& s) { std::swap(s.sequences[0], s.sequences[1]); }},
      {"out of order", [](auto& s) { s.sequences[1].id = s.sequences[0].id; }},
      {"an impossible length", [](auto& s) { Of(s, kWaits).length_limit = 8; }},
      {"an impossible length", [](auto& s) { Of(s, kWaits).length_limit = 65; }},
      {"an impossible length", [](auto& s) { Of(s, kWaits).prompt_length = 9; }},
      {"an impossible length", [](auto& s) { Of(s, kWaits).prompt_reached = 9; }},
      {"an impossible length", [](auto& s) { Of(s, kWaits).cached_tokens = 1; }},
      {"other hashes than its blocks", [](auto& s) { Of(s, kWaits).block_hashes.pop_back(); }},
      {"other hashes than its blocks", [](auto& s) { Of(s, kWaits).block_hashes[0].high = 1; }},
      {"an impossible priority", [](auto& s) { Of(s, kWaits).priority = kPriorityAbsMax + 1; }},
      {"an impossible priority",
       [](auto& s) { Of(s, kWaits).priority = std::numeric_limits<int32_t>::min(); }},
      {"too many lost groups", [](auto& s) { Of(s, kWaits).losses = kGroupLossesMax; }},
      {"two sequences that run alone",
       [](auto& s) { Of(s, kShares).losses = Of(s, kSharesToo).losses = kGroupLossesShared + 1; }},
      {"tables of other KV groups", [](auto& s) { Of(s, kWaits).tables.pop_back(); }},
      {"a table of another size", [](auto& s) { Of(s, kWaits).tables[0].capacity = 0; }},
      {"a table of another size", [](auto& s) { Of(s, kWaits).tables[1].capacity = 1000; }},
      {"what only running sequences have", [](auto& s) { Of(s, kWaits).slot = 3; }},
      {"what only running sequences have", [](auto& s) { Of(s, kWaits).kept_until = 1; }},
      {"what only running sequences have",
       [](auto& s) { Of(s, kWaits).tables[0].untold_left = 1; }},
      {"a place before it was let in", [](auto& s) { Of(s, kShares).was_admitted = false; }},
      {"a slot that it cannot have", [](auto& s) { Of(s, kShares).slot = 4; }},
      {"a slot that it cannot have",
       [](auto& s) {
         const Slot slot = Of(s, kSharesToo).slot = Of(s, kShares).slot;
         for (auto& step : s.in_flight) {
           for (auto& row : step.step_rows) row.slot = row.id == kSharesToo ? slot : row.slot;
         }
       }},
      {"another part of its log", [](auto& s) { ++Of(s, kShares).computed; }},
      {"another part of its log", [](auto& s) { Of(s, kPrompt).computed = 40; }},
      {"another part of its log", [](auto& s) { Of(s, kPrompt).phase = Phase::kDecoding; }},
      {"a row that is not its own", [](auto& s) { Of(s, kShares).confirmed += 1; }},
      {"another number of published blocks", [](auto& s) { ++Of(s, kPrompt).published_blocks; }},
      {"tables that reach elsewhere", [](auto& s) { ++Of(s, kPrompt).reach; }},
      {"a place kept beyond the context", [](auto& s) { Of(s, kPrompt).kept_until = 65; }},
  });
}

TEST_CASE("A state whose tables lack what rows read, or give too much, is refused", "[state]") {
  CheckRefused({
      {"an impossible table", [](auto& s) { Of(s, kPrompt).tables[0].blocks.pop_back(); }},
      {"an impossible table", [](auto& s) { ++Of(s, kPrompt).tables[0].end; }},
      {"an impossible table", [](auto& s) { Of(s, kPrompt).tables[0].first = 11; }},
      {"a table that is not full",
       [](auto& s) {
         Of(s, kPrompt).tables[0].blocks.pop_back();
         --Of(s, kPrompt).tables[0].end;
       }},
      {"a table that is not full",
       [](auto& s) {
         TableState& table = Of(s, kPrompt).tables[0];
         table.blocks.erase(table.blocks.begin());
         ++table.first;
       }},
      {"more news of a table than blocks",
       [](auto& s) { Of(s, kPrompt).tables[0].untold_appended = 100; }},
      {"more news of a table than blocks",
       [](auto& s) { Of(s, kPrompt).tables[0].untold_left = 1; }},
      {"a table that lacks what its rows read",
       [](auto& s) { Of(s, kPrompt).tables[0].untold_appended = 10; }},
      {"a table that lacks what its rows read",
       [](auto& s) {
         TableState& table = Of(s, kShares).tables[1];
         table.first = table.end;
         table.blocks.clear();
       }},
      {"news for the shards that are none",
       [](auto& s) { Of(s, kShares).has_untold = !Of(s, kShares).has_untold; }},
      {"blocks that leave at another position", [](auto& s) { ++Of(s, kShares).next_leave; }},
  });
}

TEST_CASE("A state whose steps in flight are not those of its sequences is refused", "[state]") {
  CheckRefused({
      {"too many steps in flight", [](auto& s) { s.in_flight.push_back({}); }},
      {"an impossible number of the next step", [](auto& s) { s.next_step = 2; }},
      {"an impossible number of the next step", [](auto& s) { s.next_step = ~StepNumber{0}; }},
      {"a step in flight that is too large", [](auto& s) { s.in_flight[0].rows = ~0u; }},
      {"a step in flight that is too large",
       [](auto& s) { s.in_flight[0].context_tokens = ~uint64_t{0}; }},
      {"a row of no slot", [](auto& s) { s.in_flight[0].step_rows[0].slot = 4; }},
      {"a row beyond the context", [](auto& s) { s.in_flight[0].step_rows[0].kv_end = 65; }},
      {"a row beyond the context", [](auto& s) { s.in_flight[0].step_rows[0].kv_end = 0; }},
      {"two rows of a sequence in a step",
       [](auto& s) { s.in_flight[0].step_rows[1].id = s.in_flight[0].step_rows[0].id; }},
      {"other steps in flight than there are", [](auto& s) { Of(s, kShares).steps_in_flight = 0; }},
      {"other steps in flight than there are", [](auto& s) { ++Of(s, kShares).samples_in_flight; }},
      {"other steps in flight than there are", [](auto& s) { s.in_flight[1].step_rows.clear(); }},
      {"a row that is not its own",
       [](auto& s) {
         for (StepRow& row : s.in_flight[0].step_rows) row.kv_end = 60;
       }},
      {"tokens in flight beyond its limit",
       [](auto& s) { Of(s, kShares).length_limit = Of(s, kShares).log_tokens + 1; }},
      {"rows in flight that do not lead to what is computed",
       [](auto& s) {
         for (StepRow& row : s.in_flight[1].step_rows) row.kv_end += row.id == kPrompt;
       }},
      {"a drop of a slot that nobody left", [](auto& s) { s.drops.push_back(s.drops[0]); }},
      {"a drop of a slot that nobody left", [](auto& s) { s.drops[0] = Of(s, kShares).slot; }},
      {"a drop of a slot that nobody left", [](auto& s) { s.drops[0] = 4; }},
      {"blocks or steps of no group", [](auto& s) { s.formed = false; }},
  });
}

TEST_CASE("A state with tenants, times or costs of nobody is refused", "[state]") {
  const double none = std::numeric_limits<double>::quiet_NaN();
  CheckRefused({
      {"tenants that are not those", [](auto& s) { s.tenants.push_back(s.tenants[0]); }},
      {"tenants that are not those", [](auto& s) { s.tenants[0].idle = true; }},
      {"tenants that are not those", [](auto& s) { s.tenants.back().idle = false; }},
      {"a sequence without a tenant", [](auto& s) { s.tenants.erase(s.tenants.begin()); }},
      {"a tenant with impossible numbers", [=](auto& s) { s.tenants[0].served = none; }},
      {"a tenant with impossible numbers", [=](auto& s) { s.tenants[0].weight = none; }},
      {"a tenant with impossible numbers", [](auto& s) { s.tenants[0].wait_number = s.waits + 1; }},
      {"a tenant that left at another time",
       [](auto& s) { s.tenants.back().idle_since_us = s.now_us + 1; }},
      {"a tenant that left at another time",
       [](auto& s) { s.tenants.back().idle_since_us = std::numeric_limits<int64_t>::min(); }},
      {"too many tenants without",
       [](auto& s) {
         for (uint32_t i = 0; i < kTenantsIdleMax; ++i) {
           TenantState tenant = s.tenants.back();
           tenant.index = 100 + i;
           s.tenants.push_back(tenant);
         }
       }},
      {"sums that are not those of its tenants", [](auto& s) { s.weights += 1; }},
      {"sums that are not those of its tenants", [=](auto& s) { s.weights = none; }},
      {"sums that are not those of its tenants", [=](auto& s) { s.turn_served = none; }},
      {"a time that no clock shows",
       [](auto& s) { s.now_us = std::numeric_limits<int64_t>::min(); }},
      {"an impossible cost of rows", [=](auto& s) { s.knots_us[3] = none; }},
      {"an impossible cost of rows", [](auto& s) { s.knots_us[3] = s.knots_us[2] - 1; }},
      {"an impossible cost of rows", [](auto& s) { s.knots_us.back() = 1e300; }},
      {"an impossible cost of context", [](auto& s) { s.context_token_us = -1; }},

  });
}

}  // namespace
}  // namespace weft::router

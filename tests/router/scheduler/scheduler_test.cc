// What transcripts cannot show: refusals, limits that are cut, hashes made elsewhere.

#include "router/scheduler/scheduler.h"

#include <catch2/catch.hpp>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace weft::router {
namespace {

SchedulerConfig Config() {
  SchedulerConfig config;
  config.running_max = 4;
  config.step_tokens_max = 64;
  config.block_tokens = 4;
  config.context_tokens_max = 64;
  config.watermark_permille = 0;
  config.hash_key[0] = 3;
  config.hash_key[1] = 4;
  config.eos_ids = {0};
  return config;
}

std::vector<TokenId> Ids(uint32_t count, TokenId first = 1) {
  std::vector<TokenId> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

Arrival MakeArrival(SequenceId id, uint32_t prompt_tokens, uint32_t max_new_tokens) {
  Arrival arrival;
  arrival.id = id;
  arrival.prompt = Prompt(Ids(prompt_tokens));
  arrival.max_new_tokens = max_new_tokens;
  return arrival;
}

std::vector<Ended> Form(Scheduler* scheduler, uint32_t kv_blocks) {
  GroupInfo group;
  group.kv_blocks = kv_blocks;
  std::vector<Ended> ended;
  scheduler->OnGroupFormed(group, 0, &ended);
  return ended;
}

// Runs until nothing is left; the ends.
std::vector<Ended> RunAll(Scheduler* scheduler) {
  std::vector<Emitted> emitted;
  std::vector<Ended> ended;
  while (const StepPlan* const plan = scheduler->Plan(0)) {
    std::vector<SampledRow> rows;
    for (const Slot slot : plan->decode_slots) rows.push_back({slot, 9});
    for (const PlannedChunk& chunk : plan->chunks) {
      if (chunk.last) rows.push_back({chunk.slot, 9});
    }
    scheduler->OnStepDone(plan->step, rows, {100}, 0, &emitted, &ended);
    scheduler->CheckInvariantsForTest();
  }
  return ended;
}

TEST_CASE("An arrival that cannot run is refused with its field and leaves nothing behind",
          "[router][scheduler]") {
  Scheduler scheduler(Config());
  REQUIRE(Form(&scheduler, 10).empty());
  const auto refusal = [&](Arrival arrival) {
    const absl::Status status = scheduler.OnArrival(std::move(arrival), 0);
    scheduler.CheckInvariantsForTest();
    CHECK(scheduler.Stats().waiting == 0);
    return status;
  };
  CHECK(absl::IsInvalidArgument(refusal(MakeArrival(1, 0, 1))));
  CHECK(absl::IsInvalidArgument(refusal(MakeArrival(1, 1, 0))));
  CHECK(absl::IsInvalidArgument(refusal(MakeArrival(1, 60, 5))));
  CHECK(absl::IsInvalidArgument(refusal(MakeArrival(1, 60, std::numeric_limits<uint32_t>::max()))));
  for (const double weight : {0.0, -1.0, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    Arrival arrival = MakeArrival(1, 4, 4);
    arrival.tenant_weight = weight;
    const absl::Status status = refusal(std::move(arrival));
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message().find("weight") == 0);
  }
  Arrival urgent = MakeArrival(1, 4, 4);
  urgent.priority = kPriorityAbsMax + 1;
  CHECK(absl::IsInvalidArgument(refusal(std::move(urgent))));
  // The context has room for it, the pool of 40 tokens (and one that is never written) has not.
  CHECK(absl::IsResourceExhausted(refusal(MakeArrival(1, 30, 12))));
  CHECK(scheduler.OnArrival(MakeArrival(1, 30, 11), 0).ok());
  CHECK(absl::IsAlreadyExists(scheduler.OnArrival(MakeArrival(1, 4, 4), 0)));
  CHECK(scheduler.Stats().waiting == 1);
  CHECK(RunAll(&scheduler).size() == 1);
}

TEST_CASE("What a smaller pool cannot hold ends, and nothing else", "[router][scheduler]") {
  Scheduler scheduler(Config());
  Form(&scheduler, 16);
  REQUIRE(scheduler.OnArrival(MakeArrival(1, 30, 20), 0).ok());
  REQUIRE(scheduler.OnArrival(MakeArrival(2, 8, 8), 0).ok());
  std::vector<Ended> ended;
  scheduler.OnGroupLost(0, &ended);
  REQUIRE(ended.empty());
  // Between groups nobody knows the next pool.
  REQUIRE(scheduler.OnArrival(MakeArrival(3, 40, 20), 0).ok());
  ended = Form(&scheduler, 10);
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].id == 1);
  CHECK(ended[1].id == 3);
  CHECK(ended[0].reason == EndReason::kPoolShrank);
  ended = RunAll(&scheduler);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].id == 2);
}

TEST_CASE("A limit is cut to the room of a smaller pool, unless the tokens are there already",
          "[router][scheduler]") {
  Scheduler scheduler(Config());
  Form(&scheduler, 16);
  REQUIRE(scheduler.OnArrival(MakeArrival(1, 30, 34), 0).ok());
  REQUIRE(scheduler.OnArrival(MakeArrival(2, 45, 19), 0).ok());
  std::vector<Ended> ended;
  scheduler.OnGroupLost(0, &ended);
  CHECK(scheduler.CutLimit(1, 40, 0).ok());
  CHECK(absl::IsFailedPrecondition(scheduler.CutLimit(2, 40, 0)));
  CHECK(absl::IsFailedPrecondition(scheduler.CutLimit(2, 45, 0)));
  CHECK(absl::IsNotFound(scheduler.CutLimit(3, 40, 0)));
  // Never longer again.
  CHECK(scheduler.CutLimit(1, 60, 0).ok());
  ended = Form(&scheduler, 10);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].id == 2);
  CHECK(ended[0].reason == EndReason::kPoolShrank);
  std::vector<Emitted> emitted;
  ended = RunAll(&scheduler);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].reason == EndReason::kLength);
}

TEST_CASE("A limit is not cut below what steps in flight will bring", "[router][scheduler]") {
  Scheduler scheduler(Config());
  Form(&scheduler, 16);
  REQUIRE(scheduler.OnArrival(MakeArrival(1, 10, 20), 0).ok());
  REQUIRE(scheduler.Plan(0) != nullptr);
  REQUIRE(scheduler.Plan(0) != nullptr);
  CHECK(absl::IsFailedPrecondition(scheduler.CutLimit(1, 11, 0)));
  CHECK(scheduler.CutLimit(1, 12, 0).ok());
  CHECK(scheduler.Plan(0) == nullptr);
  scheduler.CheckInvariantsForTest();
}

TEST_CASE("A prompt that was hashed elsewhere becomes the log without a copy or a hash here",
          "[router][scheduler]") {
  Scheduler scheduler(Config());
  Form(&scheduler, 16);
  std::vector<TokenId> ids = Ids(33);
  const PrefixHasher hasher = scheduler.prefix_hasher();
  Prompt prompt;
  std::thread([&] { prompt = hasher.Hash(std::move(ids), 5); }).join();
  const TokenId* const memory = prompt.ids().data();
  Arrival arrival = MakeArrival(1, 1, 1);
  arrival.prompt = std::move(prompt);
  REQUIRE(scheduler.OnArrival(std::move(arrival), 0).ok());
  CHECK(scheduler.Log(1).data() == memory);
  CHECK(scheduler.Stats().prompts_hashed_here == 0);
  RunAll(&scheduler);
  // The same prompt with nobody's hashes, and with those of another key or block size, hits what
  // the first one published; the salt separates it from others.
  const uint64_t key[2] = {3, 4};
  const uint64_t other_key[2] = {3, 5};
  const auto cached = [&](SequenceId id, Prompt again) {
    Arrival next = MakeArrival(id, 1, 1);
    next.prompt = std::move(again);
    REQUIRE(scheduler.OnArrival(std::move(next), 0).ok());
    REQUIRE(scheduler.Plan(0) != nullptr);
    const uint32_t tokens = scheduler.CachedTokens(id);
    std::vector<Ended> ended;
    scheduler.OnGroupLost(0, &ended);
    scheduler.OnCancel(id, 0, &ended);
    Form(&scheduler, 16);
    Arrival first = MakeArrival(100 + id, 1, 1);
    first.prompt = hasher.Hash(Ids(33), 5);
    REQUIRE(scheduler.OnArrival(std::move(first), 0).ok());
    RunAll(&scheduler);
    return tokens;
  };
  CHECK(cached(2, Prompt(Ids(33), 5)) == 32);
  CHECK(cached(3, PrefixHasher(other_key, 4).Hash(Ids(33), 5)) == 32);
  CHECK(cached(4, PrefixHasher(key, 8).Hash(Ids(33), 5)) == 32);
  CHECK(scheduler.Stats().prompts_hashed_here == 3);
  CHECK(cached(5, PrefixHasher(key, 4).Hash(Ids(33), 5)) == 32);
  CHECK(scheduler.Stats().prompts_hashed_here == 3);
  CHECK(cached(6, PrefixHasher(key, 4).Hash(Ids(33), 6)) == 0);
  CHECK(cached(7, Prompt(Ids(33), 6)) == 0);
}

}  // namespace
}  // namespace weft::router

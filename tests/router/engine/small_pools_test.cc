// KV pools smaller than one context, from the start or after a restart: what no pool can hold is
// refused before a shard hears of it, and what was let in under a larger pool is cut or ends.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <string>

#include "router/errors.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

// 20 blocks of 16 tokens for contexts of 1,024.
constexpr uint32_t kPoolTokens = 320;

RigOptions SmallPool() {
  RigOptions options;
  options.shape.kv_blocks = 20;
  options.shape.context_tokens = 1024;
  options.shape.running_max = 8;
  return options;
}

TEST_CASE("A request that the KV pool cannot hold is refused by field and reaches no shard",
          "[router][engine]") {
  EngineRig rig(SmallPool());
  rig.WaitReady();
  CHECK(rig.engine().Model().shape.context_tokens == 1024);
  CHECK(rig.engine().Model().shape.request_tokens_max == kPoolTokens);
  const auto refused_field = [&rig](size_t prompt_tokens, uint32_t max_tokens) {
    auto sink = rig.Submit(MakeInput(1, prompt_tokens, max_tokens));
    sink->WaitEnd();
    CHECK(absl::IsInvalidArgument(sink->status()));
    return ErrorField(sink->status()).value_or("none");
  };
  CHECK(refused_field(kPoolTokens, 1) == "prompt");
  CHECK(refused_field(900, 1) == "prompt");
  CHECK(refused_field(kPoolTokens - 10, 11) == "max_tokens");
  CHECK(rig.shard(0).stats().steps == 0);
}

TEST_CASE("A pool smaller than one context serves whatever fits, one after the other",
          "[router][engine]") {
  EngineRig rig(SmallPool());
  rig.WaitReady();
  // To the last token of the pool, alone and with others that want all of it too.
  std::vector<GenerateInput> inputs;
  inputs.push_back(MakeInput(1, kPoolTokens - 10, 10));
  inputs.push_back(MakeInput(2, 1, kPoolTokens - 1));
  GenerateInput open = MakeInput(3, 100, 0);
  open.max_tokens.reset();
  inputs.push_back(open);
  for (uint64_t i = 4; i < 12; ++i) inputs.push_back(MakeInput(i, 40, 200));
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (const GenerateInput& input : inputs) sinks.push_back(rig.Submit(input));
  for (size_t i = 0; i < sinks.size(); ++i) {
    INFO("request " << i);
    sinks[i]->WaitEnd();
    INFO(sinks[i]->status().ToString());
    REQUIRE(sinks[i]->status().ok());
    GenerateInput input = inputs[i];
    if (!input.max_tokens.has_value()) input.max_tokens = kPoolTokens - 100;
    CHECK(sinks[i]->ids() == rig.Expected(input));
  }
  CHECK(sinks[2]->finished().reason == FinishReason::kLength);
  rig.CheckClean();
}

TEST_CASE("Shards that come back with a smaller KV pool end only what it cannot hold",
          "[router][engine][faults]") {
  RigOptions options;
  options.supervisor = false;
  options.shape.kv_blocks = 64;
  options.shape.context_tokens = 1024;
  EngineRig rig(options);
  rig.WaitReady();
  GenerateInput too_long = MakeInput(1, 100, 700);
  GenerateInput fits = MakeInput(2, 100, 150);
  GenerateInput open = MakeInput(3, 100, 0);
  open.max_tokens.reset();
  // It dies in the tenth step in which all three decode.
  std::atomic<int> steps_of_all{0};
  rig.shard(0).SetFaults([&steps_of_all](const testing::MockMoment& moment) {
    if (moment.decoding.size() < 3 || steps_of_all.fetch_add(1) != 9) {
      return testing::MockFault::kNone;
    }
    return testing::MockFault::kDie;
  });
  auto ends = rig.Submit(too_long);
  auto stays = rig.Submit(fits);
  auto cut = rig.Submit(open);
  EngineRig::WaitUntil("the loss is seen",
                       [&] { return rig.engine().Status().state == ServerState::kRecovering; });
  rig.shard(0).SetFaults(nullptr);
  rig.shard(0).Kill();
  // One that comes while nobody knows the next pool.
  auto waits = rig.Submit(MakeInput(4, 50, 600));
  rig.shard(0).SetKvBlocks(20);
  rig.shard(0).Start();
  for (const auto& sink : {ends, waits}) {
    sink->WaitEnd();
    CHECK(absl::IsUnavailable(sink->status()));
    CHECK(ErrorReason(sink->status()) == "POOL_SHRANK");
    CHECK(RetryAfter(sink->status()).has_value());
  }
  const std::vector<TokenId> whole = rig.Expected(too_long);
  const std::vector<TokenId> begun = ends->ids();
  REQUIRE(begun.size() >= 5);
  CHECK(std::equal(begun.begin(), begun.end(), whole.begin()));
  stays->WaitEnd();
  CHECK(stays->ids() == rig.Expected(fits));
  // Its client named no limit: it has what the pool now leaves.
  cut->WaitEnd();
  REQUIRE(cut->status().ok());
  open.max_tokens = kPoolTokens - 100;
  CHECK(cut->ids() == rig.Expected(open));
  CHECK(cut->finished().reason == FinishReason::kLength);
  CHECK(rig.engine().Model().shape.request_tokens_max == kPoolTokens);
  auto late = rig.Submit(too_long);
  late->WaitEnd();
  CHECK(ErrorField(late->status()) == "max_tokens");
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router

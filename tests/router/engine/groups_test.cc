// Several groups of shards behind one router: who gets what, and what becomes of it when a group is
// lost.

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

RigOptions TwoGroups(uint32_t world = 1) {
  RigOptions options = TwoShards();
  options.world = world;
  options.groups = 2;
  return options;
}

void WaitAllServe(EngineRig& rig) {
  EngineRig::WaitUntil("all groups serve", [&rig] {
    return MetricValue(rig.probe(), "weft_group_state{state=\"serving\"}") == 2;
  });
}

uint64_t Prefills(EngineRig& rig, uint32_t shard) { return rig.shard(shard).stats().chunks; }

TEST_CASE("Requests are spread over groups, and every answer is right", "[router][groups]") {
  EngineRig rig(TwoGroups(2));
  WaitAllServe(rig);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  std::vector<GenerateInput> inputs;
  for (uint64_t seed = 1; seed <= 40; ++seed) inputs.push_back(MakeInput(seed, 20 + seed, 30));
  for (const GenerateInput& input : inputs) sinks.push_back(rig.Submit(input));
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->WaitEnd();
    CHECK(sinks[i]->ids() == rig.Expected(inputs[i]));
  }
  CHECK(Prefills(rig, 0) > 0);
  CHECK(Prefills(rig, 2) > 0);
  CHECK(Prefills(rig, 0) == Prefills(rig, 1));
  rig.CheckClean();
}

TEST_CASE("A prompt goes where its beginning is known", "[router][groups]") {
  EngineRig rig(TwoGroups());
  WaitAllServe(rig);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (int turn = 0; turn < 3; ++turn) {
      auto sink = rig.Submit(MakeInput(seed, 100, 5));
      sink->WaitEnd();
      CHECK(sink->started().cached_tokens == (turn == 0 ? 0u : 96u));
    }
  }
  rig.CheckClean();
}

TEST_CASE("A flush reaches the caches of all groups", "[router][groups]") {
  EngineRig rig(TwoGroups());
  WaitAllServe(rig);
  for (const bool flushed : {false, true}) {
    if (flushed) CHECK(rig.engine().FlushPrefixCache() == absl::OkStatus());
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      for (int turn = 0; turn < 2; ++turn) {
        auto sink = rig.Submit(MakeInput(seed, 100, 5));
        sink->WaitEnd();
        CHECK(sink->started().cached_tokens == (turn == 0 ? 0u : 96u));
      }
    }
  }
  CHECK(Prefills(rig, 0) > 0);
  CHECK(Prefills(rig, 1) > 0);
  rig.CheckClean();
}

TEST_CASE("A lost group gets nothing new and the other one goes on", "[router][groups]") {
  RigOptions options = TwoGroups();
  options.supervisor = false;
  EngineRig rig(options);
  WaitAllServe(rig);
  std::vector<std::shared_ptr<FakeSink>> early;
  std::vector<GenerateInput> inputs;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    inputs.push_back(MakeInput(seed, 20, 400));
    early.push_back(rig.Submit(inputs.back()));
  }
  for (auto& sink : early) sink->WaitTokens(3);
  rig.shard(0).Kill();
  EngineRig::WaitUntil("the loss is noticed", [&rig] {
    return MetricValue(rig.probe(), "weft_group_serving{group=\"0\"}") == 0;
  });
  CHECK(rig.engine().Status().state == ServerState::kReady);
  CHECK(absl::StrContains(rig.engine().Status().detail, "1 of 2 groups serve; group 0: "));
  // Newcomers end while the group is lost.
  for (uint64_t seed = 101; seed <= 110; ++seed) {
    const GenerateInput input = MakeInput(seed, 30, 10);
    auto sink = rig.Submit(input);
    sink->WaitEnd();
    CHECK(sink->ids() == rig.Expected(input));
  }
  CHECK(MetricValue(rig.probe(), "weft_group_serving{group=\"0\"}") == 0);
  rig.shard(0).Start();
  for (size_t i = 0; i < early.size(); ++i) {
    early[i]->WaitEnd();
    CHECK(early[i]->ids() == rig.Expected(inputs[i]));
  }
  rig.CheckClean();
}

TEST_CASE("What a lost group had not begun runs in the other one", "[router][groups]") {
  RigOptions options = TwoGroups();
  options.supervisor = false;
  // One place in each group, so that everybody else waits.
  options.shape.running_max = options.engine.running_max = 1;
  options.step_us = 3000;
  EngineRig rig(options);
  WaitAllServe(rig);
  const double before = MetricValue(rig.probe(), "weft_requests_given_back_total");
  auto first = rig.Submit(MakeInput(1, 20, 900));
  first->WaitTokens(2);
  const uint32_t lost = Prefills(rig, 0) > 0 ? 0 : 1;
  auto second = rig.Submit(MakeInput(2, 20, 200));
  second->WaitTokens(2);
  // Two of them wait in each group, the others in front of both.
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t seed = 3; seed <= 10; ++seed) sinks.push_back(rig.Submit(MakeInput(seed, 20, 5)));
  EngineRig::WaitUntil("some wait in the group", [&] {
    return MetricValue(rig.probe(), absl::StrCat("weft_group_requests{group=\"", lost,
                                                 "\",state=\"waiting\"}")) == 2;
  });
  CHECK(MetricValue(rig.probe(), "weft_num_requests_undispatched") > 0);
  rig.shard(lost).Kill();
  for (uint64_t seed = 3; seed <= 10; ++seed) {
    sinks[seed - 3]->WaitEnd();
    CHECK(sinks[seed - 3]->ids() == rig.Expected(MakeInput(seed, 20, 5)));
  }
  CHECK(MetricValue(rig.probe(), "weft_requests_given_back_total") - before == 2);
  CHECK_FALSE(first->ended());
  first->Cancel(CancelReason::kClientGone);
  first->WaitEnd();
}

TEST_CASE("A request that no group has yet can be cancelled, and drains like others",
          "[router][groups]") {
  RigOptions options = TwoGroups();
  options.shape.running_max = options.engine.running_max = 1;
  options.step_us = 3000;
  EngineRig rig(options);
  WaitAllServe(rig);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    sinks.push_back(rig.Submit(MakeInput(seed, 20, 900)));
  }
  EngineRig::WaitUntil("some have no group", [&rig] {
    return MetricValue(rig.probe(), "weft_num_requests_undispatched") >= 6;
  });
  sinks[11]->Cancel(CancelReason::kClientGone);
  sinks[11]->WaitEnd();
  CHECK(absl::IsCancelled(sinks[11]->status()));
  rig.engine().StartDrain(absl::Milliseconds(50));
  for (auto& sink : sinks) sink->WaitEnd();
  CHECK(absl::IsUnavailable(sinks[10]->status()));
  CHECK(rig.engine().WaitIdle(absl::Seconds(10)));
}

TEST_CASE("A complete answer that is resumed needs no group's memory", "[router][groups]") {
  RigOptions options = TwoGroups();
  options.shape.kv_blocks = 20;
  EngineRig rig(options);
  WaitAllServe(rig);
  GenerateInput input = MakeInput(1, 20, 0);
  input.max_tokens.reset();
  auto whole = rig.Submit(input);
  whole->WaitEnd();
  REQUIRE(whole->finished().reason == FinishReason::kLength);
  // Its tokens are all that a pool bears.
  input.seed = whole->started().seed;
  input.resume.emplace();
  input.resume->fingerprint = whole->started().fingerprint;
  input.resume->output_ids = whole->ids();
  auto again = rig.Submit(input);
  again->WaitEnd();
  CHECK(again->status().ok());
  CHECK(again->finished().reason == FinishReason::kLength);
  rig.CheckClean();
}

// Two groups with a place each, of which the second comes back with a pool too small for what
// waits.
struct Shrunken {
  Shrunken() : rig(Options()) {
    WaitAllServe(rig);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      running.push_back(rig.Submit(MakeInput(seed, 20, 900)));
      running.back()->WaitTokens(2);
    }
    // Behind what waits in the groups.
    for (uint64_t seed = 3; seed <= 10; ++seed) {
      large.push_back(rig.Submit(MakeInput(seed, 20, 400)));
    }
    EngineRig::WaitUntil("some have no group", [this] {
      return MetricValue(rig.probe(), "weft_num_requests_undispatched") >= 4;
    });
    rig.shard(1).Kill();
    EngineRig::WaitUntil("the loss is noticed", [this] {
      return MetricValue(rig.probe(), "weft_group_serving{group=\"1\"}") == 0;
    });
    rig.shard(1).SetKvBlocks(20);
    rig.shard(1).Start();
    WaitAllServe(rig);
    EngineRig::WaitUntil("the small one is idle", [this] {
      return MetricValue(rig.probe(), "weft_group_requests{group=\"1\",state=\"running\"}") == 0;
    });
  }
  static RigOptions Options() {
    RigOptions options = TwoGroups();
    options.supervisor = false;
    options.shape.kv_blocks = 120;
    options.shape.running_max = options.engine.running_max = 1;
    options.step_us = 3000;
    options.engine.recovery_timeout_s = 2;
    return options;
  }

  EngineRig rig;
  std::vector<std::shared_ptr<FakeSink>> running;
  std::vector<std::shared_ptr<FakeSink>> large;
};

TEST_CASE("Who waits for a full group holds up nobody whom a smaller one can take",
          "[router][groups]") {
  Shrunken is;
  const GenerateInput input = MakeInput(99, 20, 5);
  auto small = is.rig.Submit(input);
  small->WaitEnd();
  CHECK(small->ids() == is.rig.Expected(input));
  // Most of them would have had to end before.
  CHECK_FALSE(is.large[2]->ended());
  for (auto& sink : is.large) sink->Cancel(CancelReason::kClientGone);
  for (auto& sink : is.running) sink->Cancel(CancelReason::kClientGone);
  for (auto& sink : is.large) sink->WaitEnd();
  is.rig.CheckClean();
}

TEST_CASE("Who fits only a group that does not come back ends in time", "[router][groups]") {
  Shrunken is;
  is.rig.shard(0).Kill();
  for (auto& sink : is.large) sink->WaitEnd();
  CHECK(absl::IsUnavailable(is.large.back()->status()));
  CHECK(absl::StrContains(is.large.back()->status().message(), "too little KV memory"));
  // The small group serves on.
  const GenerateInput input = MakeInput(99, 20, 5);
  auto small = is.rig.Submit(input);
  small->WaitEnd();
  CHECK(small->ids() == is.rig.Expected(input));
}

TEST_CASE("Requests end when no group comes back in time", "[router][groups]") {
  RigOptions options = TwoGroups();
  options.supervisor = false;
  options.engine.recovery_timeout_s = 1;
  EngineRig rig(options);
  WaitAllServe(rig);
  rig.shard(0).Kill();
  rig.shard(1).Kill();
  EngineRig::WaitUntil("both losses are noticed", [&rig] {
    return MetricValue(rig.probe(), "weft_group_state{state=\"serving\"}") == 0;
  });
  auto sink = rig.Submit(MakeInput(1, 20, 5));
  sink->WaitEnd();
  CHECK(absl::IsUnavailable(sink->status()));
  CHECK(absl::StrContains(sink->status().message(), "no group of shards came back within 1 s"));
}

}  // namespace
}  // namespace weft::router

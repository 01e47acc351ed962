// Real engine, mock shards that die, hang, err and lie: streams stay open and go on with exactly
// the tokens of an undisturbed run.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

using testing::MockFault;
using testing::MockMoment;

// A fault that happens once, at the first moment that fits.
class OneFault {
 public:
  OneFault(MockFault fault, std::function<bool(const MockMoment&)> when)
      : fault_(fault), when_(std::move(when)) {}

  MockFault operator()(const MockMoment& moment) {
    if (!armed_.load() || !when_(moment)) return MockFault::kNone;
    if (!armed_.exchange(false)) return MockFault::kNone;
    return fault_;
  }
  bool happened() const { return !armed_.load(); }

 private:
  const MockFault fault_;
  const std::function<bool(const MockMoment&)> when_;
  std::atomic<bool> armed_{true};
};

// Sixteen streams, some with penalties, whose answers must be the undisturbed ones.
struct Streams {
  explicit Streams(EngineRig& rig) : rig(rig) {
    for (uint64_t i = 0; i < 16; ++i) {
      GenerateInput input = MakeInput(i, 20 + 17 * (i % 7), 60 + static_cast<uint32_t>(i));
      if (i % 2 == 1) input.sampling.repetition_penalty = 1.2f;
      inputs.push_back(input);
      sinks.push_back(rig.Submit(input));
    }
  }
  void Check() {
    for (size_t i = 0; i < sinks.size(); ++i) {
      INFO("stream " << i);
      sinks[i]->WaitEnd();
      INFO(sinks[i]->status().ToString());
      REQUIRE(sinks[i]->status().ok());
      CHECK(sinks[i]->ids() == rig.Expected(inputs[i]));
    }
  }
  EngineRig& rig;
  std::vector<GenerateInput> inputs;
  std::vector<std::shared_ptr<FakeSink>> sinks;
};

// One fault at `rank`, at the first moment that fits. In a step the other rank does not answer
// either, until it is told to leave: no step with collectives ends on one rank alone.
class FaultAtRank {
 public:
  FaultAtRank(MockFault kind, Rank rank, std::function<bool(const MockMoment&)> when)
      : kind_(kind), rank_(rank), when_(std::move(when)) {}

  MockFault operator()(Rank rank, const MockMoment& moment) {
    absl::MutexLock lock(&mutex_);
    if (moment.step == 0) {
      if (rank != rank_ || happened_.load() || !when_(moment)) return MockFault::kNone;
      happened_.store(true);
      return kind_;
    }
    // Both ranks are asked about the same steps, either of them first.
    if (!chosen_.has_value() && when_(moment)) chosen_ = {moment.epoch, moment.step};
    if (chosen_ != std::pair(moment.epoch, moment.step)) return MockFault::kNone;
    if (rank == rank_) {
      happened_.store(true);
      return kind_;
    }
    const bool other_answers = kind_ == MockFault::kWrongHash || kind_ == MockFault::kWrongEpoch;
    return other_answers ? MockFault::kNone : MockFault::kLate;
  }
  bool happened() const { return happened_.load(); }

 private:
  const MockFault kind_;
  const Rank rank_;
  const std::function<bool(const MockMoment&)> when_;
  absl::Mutex mutex_;
  std::optional<std::pair<Epoch, StepNumber>> chosen_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> happened_{false};
};

// Losses of the group by the state it was in.
const std::vector<std::string> kLosses = {"weft_group_losses_total{state=\"joining\"}",
                                          "weft_group_losses_total{state=\"warming\"}",
                                          "weft_group_losses_total{state=\"serving\"}"};
constexpr char kTimeouts[] = "weft_shard_restarts_total{reason=\"timeout\"}";
constexpr char kPrefillLost[] = "weft_steps_lost_total{kind=\"prefill\"}";
constexpr char kDecodeLost[] = "weft_steps_lost_total{kind=\"decode\"}";

// Runs the streams with one fault at `rank` and checks that it happened, that it cost the group
// once, in `state`, that each series of `counted` counted it, and that it cost no stream anything.
void CheckSurvives(MockFault kind, Rank rank, std::function<bool(const MockMoment&)> when,
                   const std::string& state, const std::vector<std::string>& counted = {}) {
  FaultAtRank fault(kind, rank, std::move(when));
  RigOptions options = TwoShards();
  options.late_us = 60'000'000;  // until it is told to leave
  options.faults = [&fault](Rank rank, const MockMoment& m) { return fault(rank, m); };
  Probe before;
  const Grown losses(before, kLosses);
  const Grown grown(before, counted);
  EngineRig rig(options);
  rig.WaitReady();
  Streams streams(rig);
  streams.Check();
  CHECK(fault.happened());
  rig.CheckClean();
  CHECK(rig.engine().Status().state == ServerState::kReady);
  CHECK(!rig.has_fatal());
  // A process that can still leave is not killed.
  const bool replaced = kind == MockFault::kDie || kind == MockFault::kHang;
  CHECK((rig.restarts() > 0) == replaced);
  for (const std::string& series : kLosses) {
    INFO(series);
    CHECK(losses(series) == (absl::StrContains(series, state) ? 1 : 0));
  }
  for (const std::string& series : counted) {
    INFO(series);
    CHECK(grown(series) >= 1);
  }
}

// In the twentieth step or later, of decode rows alone.
bool LateDecode(const MockMoment& moment) { return moment.call == "Decode" && moment.step >= 20; }

TEST_CASE("A shard that dies in a decode step costs no token", "[router][engine][faults]") {
  for (const Rank rank : {0u, 1u}) {
    for (const StepNumber step : {20u, 33u}) {
      INFO("rank " << rank << " step " << step);
      CheckSurvives(MockFault::kDie, rank,
                    [step](const MockMoment& m) { return m.call == "Decode" && m.step >= step; },
                    "serving", {kDecodeLost});
    }
  }
}

TEST_CASE("A shard that dies in the middle of a prompt costs no token",
          "[router][engine][faults]") {
  for (const Rank rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kDie, rank, [](const MockMoment& m) { return m.partial_chunks > 0; },
                  "serving", {kPrefillLost});
  }
}

TEST_CASE("A shard that dies in a step of chunks and decode rows costs no token",
          "[router][engine][faults]") {
  for (const Rank rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kDie, rank,
                  [](const MockMoment& m) { return m.call == "Prefill" && !m.decoding.empty(); },
                  "serving", {kPrefillLost});
  }
}

TEST_CASE("A shard that dies while an epoch forms again costs no token",
          "[router][engine][faults]") {
  for (const char* call : {"Rendezvous", "JoinGroup", "Warmup"}) {
    for (const Rank rank : {0u, 1u}) {
      if (std::string(call) == "Rendezvous" && rank == 1) continue;
      INFO(call << " at rank " << rank);
      EngineRig rig(TwoShards());
      const std::string serving = "weft_group_losses_total{state=\"serving\"}";
      const std::string forming =
          absl::StrCat("weft_group_losses_total{state=\"",
                       std::string(call) == "Warmup" ? "warming" : "joining", "\"}");
      const Grown grown(rig.probe(), {serving, forming});
      // First a decode step fails; then, in the second epoch's making, the shard dies.
      OneFault first(MockFault::kDie, LateDecode);
      OneFault second(MockFault::kDie,
                      [call](const MockMoment& m) { return m.call == call && m.epoch >= 2; });
      rig.shard(1 - rank).SetFaults([&](const MockMoment& m) { return first(m); });
      rig.shard(rank).SetFaults([&](const MockMoment& m) { return second(m); });
      rig.WaitReady();
      Streams streams(rig);
      streams.Check();
      CHECK(first.happened());
      CHECK(second.happened());
      CHECK(grown(serving) == 1);
      CHECK(grown(forming) == 1);
      rig.CheckClean();
      rig.shard(0).SetFaults(nullptr);
      rig.shard(1).SetFaults(nullptr);
    }
  }
}

TEST_CASE("A shard that dies before the first epoch delays serving and no more",
          "[router][engine][faults]") {
  for (const char* call : {"JoinGroup", "Warmup"}) {
    INFO(call);
    CheckSurvives(
        MockFault::kDie, 1, [call](const MockMoment& m) { return m.call == call; },
        std::string(call) == "Warmup" ? "warming" : "joining");
  }
}

TEST_CASE("A shard that hangs is found and restarted", "[router][engine][faults]") {
  for (const Rank rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kHang, rank, LateDecode, "serving", {kDecodeLost, kTimeouts});
  }
  for (const char* call : {"JoinGroup", "Warmup"}) {
    INFO(call);
    CheckSurvives(MockFault::kHang, 1, [call](const MockMoment& m) { return m.call == call; },
                  std::string(call) == "Warmup" ? "warming" : "joining", {kTimeouts});
  }
}

TEST_CASE("A step that errs ends the epoch and not its requests", "[router][engine][faults]") {
  for (const Rank rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kError, rank, LateDecode, "serving", {kDecodeLost});
  }
}

// Fails each step that has the sequence whose prompt begins with a Z among `rows`.
class Poison {
 public:
  using Rows = std::vector<SequenceId> MockMoment::*;
  explicit Poison(Rows rows) : rows_(rows) {}

  MockFault operator()(const MockMoment& moment) {
    for (const auto& [sequence, first_id] : moment.begun) {
      if (first_id == 'Z') sequence_.store(sequence);
    }
    const std::vector<SequenceId>& rows = moment.*rows_;
    const bool here = std::find(rows.begin(), rows.end(), sequence_.load()) != rows.end();
    return here ? MockFault::kError : MockFault::kNone;
  }

 private:
  const Rows rows_;
  std::atomic<SequenceId> sequence_{0};
};

TEST_CASE("A request whose steps always fail ends and takes nobody with it",
          "[router][engine][faults]") {
  const auto [rows, prompt_tokens] =
      GENERATE(table<Poison::Rows, size_t>({{&MockMoment::prefilling, 30},
                                            {&MockMoment::completing, 500},
                                            {&MockMoment::decoding, 30}}));
  EngineRig rig(TwoShards());
  const std::string losses = "weft_group_losses_total{state=\"serving\"}";
  const Grown grown(rig.probe(), {losses});
  // Rank 0: a mock of another rank may fail after rank 0 has answered, which no step with
  // collectives can.
  Poison poison(rows);
  rig.shard(0).SetFaults([&poison](const MockMoment& moment) { return poison(moment); });
  rig.WaitReady();
  Streams streams(rig);
  streams.sinks[0]->WaitTokens(3);
  GenerateInput input = MakeInput(99, prompt_tokens, 40);
  std::get<std::vector<TokenId>>(input.prompt)[0] = 'Z';
  auto ill = rig.Submit(input);
  ill->WaitEnd();
  INFO(ill->status().ToString());
  CHECK(absl::IsInternal(ill->status()));
  CHECK(ill->status().message().find("4 times") != std::string::npos);
  streams.Check();
  CHECK(grown(losses) == 4);
  CHECK(rig.restarts() == 0);
  rig.CheckClean();
  rig.shard(0).SetFaults(nullptr);
}

TEST_CASE("Ranks that disagree about a step's tokens end the epoch", "[router][engine][faults]") {
  for (const Rank rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kWrongHash, rank, LateDecode, "serving");
  }
}

TEST_CASE("A rank that answers a step for another epoch ends its own", "[router][engine][faults]") {
  for (const Rank rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kWrongEpoch, rank, LateDecode, "serving");
  }
}

TEST_CASE("A late step is no fault", "[router][engine][faults]") {
  RigOptions options = TwoShards();
  options.late_us = 300'000;  // 600 steps' time, and less than the hang time-out
  EngineRig rig(options);
  OneFault fault(MockFault::kLate,
                 [](const MockMoment& m) { return m.call == "Decode" && m.step >= 20; });
  rig.shard(1).SetFaults([&](const MockMoment& m) { return fault(m); });
  rig.WaitReady();
  Streams streams(rig);
  streams.Check();
  CHECK(fault.happened());
  rig.CheckClean();
  CHECK(rig.restarts() == 0);
  CHECK(rig.shard(0).stats().epochs == 1);
  rig.shard(1).SetFaults(nullptr);
}

}  // namespace
}  // namespace weft::router

// Real engine, mock shards that die, hang, err and lie: streams stay open and go on with exactly
// the tokens of an undisturbed run.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "router/errors.h"
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

RigOptions TwoShards() {
  RigOptions options;
  options.world = 2;
  options.shape.kv_blocks = 120;
  options.shape.running_max = 16;
  options.shape.step_tokens_max = 64;  // prompts go in chunks
  options.engine.step_tokens_max = 64;
  options.engine.running_max = 16;
  options.engine.hang_timeout_ms = 400;
  options.step_us = 500;
  return options;
}

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

// By how much series grew since it was made: the registry outlives an engine.
class Grown {
 public:
  Grown(Probe& probe, const std::vector<std::string>& series) : probe_(probe) {
    for (const std::string& name : series) before_[name] = MetricValue(probe, name);
  }
  double operator()(const std::string& name) const {
    return MetricValue(probe_, name) - before_.at(name);
  }

 private:
  Probe& probe_;
  std::map<std::string, double> before_;
};

// Runs the streams with one fault at `rank` and checks that it happened, that it was counted
// in each series of `counted`, and that it cost nothing.
void CheckSurvives(MockFault kind, uint32_t rank, std::function<bool(const MockMoment&)> when,
                   const std::vector<std::string>& counted = {}) {
  EngineRig rig(TwoShards());
  const Grown grown(rig.probe(), counted);
  OneFault fault(kind, std::move(when));
  rig.shard(rank).SetFaults([&fault](const MockMoment& moment) { return fault(moment); });
  rig.WaitReady();
  Streams streams(rig);
  streams.Check();
  CHECK(fault.happened());
  rig.CheckClean();
  CHECK(rig.engine().Status().state == ServerState::kReady);
  CHECK(!rig.has_fatal());
  for (const std::string& series : counted) {
    INFO(series);
    CHECK(grown(series) >= 1);
  }
  rig.shard(rank).SetFaults(nullptr);
}

TEST_CASE("A shard that dies in a decode step costs no token", "[router][engine][faults]") {
  for (uint32_t rank : {0u, 1u}) {
    for (StepNumber step : {20u, 33u}) {
      INFO("rank " << rank << " step " << step);
      CheckSurvives(
          MockFault::kDie, rank,
          [step](const MockMoment& m) { return m.call == "Decode" && m.step >= step; },
          {"weft_group_losses_total{state=\"serving\"}", "weft_steps_lost_total{kind=\"decode\"}"});
    }
  }
}

TEST_CASE("A shard that dies in the middle of a prompt costs no token",
          "[router][engine][faults]") {
  for (uint32_t rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(
        MockFault::kDie, rank, [](const MockMoment& m) { return m.partial_chunks > 0; },
        {"weft_group_losses_total{state=\"serving\"}", "weft_steps_lost_total{kind=\"prefill\"}"});
  }
}

TEST_CASE("A shard that dies in a mixed step costs no token", "[router][engine][faults]") {
  CheckSurvives(MockFault::kDie, 1,
                [](const MockMoment& m) { return m.call == "Prefill" && m.step >= 4; });
}

TEST_CASE("A shard that dies while an epoch forms again costs no token",
          "[router][engine][faults]") {
  for (const char* call : {"Rendezvous", "JoinGroup", "Warmup"}) {
    for (uint32_t rank : {0u, 1u}) {
      if (std::string(call) == "Rendezvous" && rank == 1) continue;
      INFO(call << " at rank " << rank);
      EngineRig rig(TwoShards());
      const std::string serving = "weft_group_losses_total{state=\"serving\"}";
      const std::string forming =
          absl::StrCat("weft_group_losses_total{state=\"",
                       std::string(call) == "Warmup" ? "warming" : "joining", "\"}");
      const Grown grown(rig.probe(), {serving, forming});
      // First a decode step fails; then, in the second epoch's making, the shard dies.
      OneFault first(MockFault::kDie,
                     [](const MockMoment& m) { return m.call == "Decode" && m.step >= 20; });
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
    CheckSurvives(MockFault::kDie, 1, [call](const MockMoment& m) { return m.call == call; });
  }
}

TEST_CASE("A shard that hangs is found and restarted", "[router][engine][faults]") {
  for (uint32_t rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kHang, rank,
                  [](const MockMoment& m) { return m.call == "Decode" && m.step >= 20; });
  }
  for (const char* call : {"JoinGroup", "Warmup"}) {
    INFO(call);
    CheckSurvives(MockFault::kHang, 1, [call](const MockMoment& m) { return m.call == call; });
  }
}

TEST_CASE("A step that errs ends the epoch and not its requests", "[router][engine][faults]") {
  for (uint32_t rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kError, rank,
                  [](const MockMoment& m) { return m.call == "Decode" && m.step >= 20; });
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
  for (uint32_t rank : {0u, 1u}) {
    INFO("rank " << rank);
    CheckSurvives(MockFault::kWrongHash, rank,
                  [](const MockMoment& m) { return m.call == "Decode" && m.step >= 20; });
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

TEST_CASE("A killed shard is noticed in 100 ms, also when nothing runs",
          "[router][engine][faults]") {
  RigOptions options = TwoShards();
  options.supervisor = false;
  options.engine.hang_timeout_ms = 5000;
  EngineRig rig(options);
  rig.WaitReady();
  rig.shard(1).Kill();
  const int64_t killed_us = MonotonicClock().NowUs();
  EngineRig::WaitUntil("the loss is seen",
                       [&] { return rig.engine().Status().state == ServerState::kRecovering; });
  const int64_t seen_us = MonotonicClock().NowUs() - killed_us;
  WARN("seen after " << seen_us << " us");
  CHECK(seen_us < 100'000);
  // A request that comes now waits for the group.
  auto sink = rig.Submit(MakeInput(1, 20, 10));
  rig.shard(1).Start();
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(MakeInput(1, 20, 10)));
  rig.CheckClean();
}

TEST_CASE("The supervisor's word ends an epoch at once", "[router][engine][faults]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  EngineRig::WaitUntil("it is connected", [&] { return rig.supervisor()->connected(); });
  const Epoch epoch = rig.shard(0).epoch();
  rig.supervisor()->SendDied(1, 12345);  // another process: no news
  rig.supervisor()->SendDied(1, rig.shard(1).pid());
  rig.RestartShard(1);
  EngineRig::WaitUntil("a new epoch formed", [&] { return rig.shard(1).epoch() > epoch; });
  rig.WaitReady();
  CHECK(rig.shard(0).epoch() == rig.shard(1).epoch());
}

TEST_CASE("Shards that do not come back in time end requests with the reason",
          "[router][engine][faults]") {
  RigOptions options = TwoShards();
  options.supervisor = false;
  options.engine.recovery_timeout_s = 1;
  EngineRig rig(options);
  rig.WaitReady();
  auto sink = rig.Submit(MakeInput(1, 20, 900));
  sink->WaitTokens(5);
  rig.shard(1).Kill();
  sink->WaitEnd();
  CHECK(absl::IsUnavailable(sink->status()));
  CHECK(ErrorReason(sink->status()) == "GROUP_LOST");
  auto refused = rig.Submit(MakeInput(1, 20, 9));
  refused->WaitEnd();
  CHECK(absl::IsUnavailable(refused->status()));
  // They come back after all.
  rig.shard(1).Start();
  rig.WaitReady();
  auto served = rig.Submit(MakeInput(1, 20, 9));
  served->WaitEnd();
  CHECK(served->status().ok());
  rig.CheckClean();
}

TEST_CASE("Requests can be cancelled while the group is lost", "[router][engine][faults]") {
  RigOptions options = TwoShards();
  options.supervisor = false;
  EngineRig rig(options);
  rig.WaitReady();
  auto gone = rig.Submit(MakeInput(1, 20, 900));
  auto stays = rig.Submit(MakeInput(2, 20, 200));
  gone->WaitTokens(5);
  stays->WaitTokens(5);
  rig.shard(0).Kill();
  EngineRig::WaitUntil("the loss is seen",
                       [&] { return rig.engine().Status().state == ServerState::kRecovering; });
  gone->Cancel(CancelReason::kClientGone);
  gone->WaitEnd();
  CHECK(absl::IsCancelled(gone->status()));
  rig.shard(0).Start();
  stays->WaitEnd();
  CHECK(stays->ids() == rig.Expected(MakeInput(2, 20, 200)));
  rig.CheckClean();
}

// The share of time in which the device was free and no step was there, over two seconds.
double StarvedShare() {
  RigOptions options;
  options.step_us = 10'000;
  // Replies of a shard of this host come on the engine loop's thread.
  options.engine.make_shard_client = [](Rank rank, const std::string& address, const ShardTls& tls,
                                        const ShardReplySink& sink, Poller* poller,
                                        const Clock* clock) {
    const auto late = [sink](ShardReply reply) {
      const bool is_step = reply.call == ShardCall::kPrefill || reply.call == ShardCall::kDecode;
      if (is_step) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      sink(std::move(reply));
    };
    return MakeShardClient(rank, address, tls, late, poller, clock);
  };
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < 32; ++i) sinks.push_back(rig.Submit(MakeInput(i, 12, 200)));
  sinks[31]->WaitTokens(5);
  rig.shard(0).ResetBusy();
  sinks[0]->WaitTokens(190);
  const testing::MockShardStats stats = rig.shard(0).stats();
  const double span_us = static_cast<double>(stats.span_us);
  const double starved = static_cast<double>(stats.starved_us) / span_us;
  WARN("starved " << 100 * starved << " %, in steps "
                  << 100 * static_cast<double>(stats.busy_us) / span_us << " % of " << span_us
                  << " us");
  for (auto& sink : sinks) sink->WaitEnd();
  rig.CheckClean();
  return starved;
}

TEST_CASE("The shards never wait for a slow router", "[router][engine][slow]") {
  // What the mock's own threads lose on a busy machine between two steps is not the router's doing,
  // so the share counts free time only; and other processes may hold the router up for once.
  double starved = StarvedShare();
  for (int again = 0; again < 2 && starved > 0.02; ++again) starved = StarvedShare();
  CHECK(starved <= 0.02);
}

}  // namespace
}  // namespace weft::router

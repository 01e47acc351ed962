// What engines see and say of lost shards: how soon, on whose word, and what becomes of requests
// while the group is away.

#include <catch2/catch.hpp>

#include "common/clock.h"
#include "router/errors.h"
#include "tests/router/engine/engine_rig.h"
#include "tests/support/thread_times.h"

namespace weft::router {
namespace {

constexpr char kServingLosses[] = "weft_group_losses_total{state=\"serving\"}";
constexpr char kExits[] = "weft_shard_restarts_total{reason=\"exit\"}";

TEST_CASE("A killed shard is noticed in 100 ms, also when nothing runs",
          "[router][engine][faults]") {
  RigOptions options = TwoShards();
  options.supervisor = false;
  options.engine.hang_timeout_ms = 5000;
  EngineRig rig(options);
  rig.WaitReady();
  const auto waited_us = [] {
    double sum_us = 0;
    for (const auto& [name, times] : testing::ThreadTimesByName()) {
      if (name == "engine" || name == "weft_engine_tes") sum_us += times.waited_us;
    }
    return sum_us;
  };
  const double waited_before_us = waited_us();
  const int64_t killed_us = MonotonicClock().NowUs();
  rig.shard(1).Kill();  // returns when all its threads have ended
  EngineRig::WaitUntil("the loss is seen",
                       [&] { return rig.engine().Status().state == ServerState::kRecovering; });
  const int64_t seen_us = MonotonicClock().NowUs() - killed_us;
  const double machine_us = waited_us() - waited_before_us;
  WARN("seen after " << seen_us << " us, of which threads waited for a CPU " << machine_us);
  CHECK(static_cast<double>(seen_us) < 100'000 + machine_us);
  // A request that comes now waits for the group.
  auto sink = rig.Submit(MakeInput(1, 20, 10));
  rig.shard(1).Start();
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(MakeInput(1, 20, 10)));
  rig.CheckClean();
}

TEST_CASE("The supervisor's word alone ends an epoch, and only when it is of this process",
          "[router][engine][faults]") {
  RigOptions options = TwoShards();
  options.engine.hang_timeout_ms = 60'000;
  EngineRig rig(options);
  const Grown grown(rig.probe(), {kServingLosses, kExits});
  rig.WaitReady();
  EngineRig::WaitUntil("it is connected", [&] { return rig.supervisor()->connected(); });
  const GenerateInput input = MakeInput(1, 20, 900);
  auto sink = rig.Submit(input);
  sink->WaitTokens(5);
  const Epoch epoch = rig.shard(0).epoch();
  // Another process of this rank: it counts as one that was replaced, and the epoch goes on.
  rig.supervisor()->SendDied(1, 12345);
  EngineRig::WaitUntil("it was heard", [&] { return grown(kExits) == 1; });
  sink->WaitTokens(sink->tokens().size() + 5);
  CHECK(grown(kServingLosses) == 0);
  // The process is well in truth, so that nothing but the word can end the epoch.
  rig.supervisor()->SendDied(1, rig.shard(1).pid());
  EngineRig::WaitUntil("the epoch has ended", [&] { return grown(kServingLosses) == 1; });
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(input));
  rig.WaitReady();
  CHECK(rig.shard(0).epoch() > epoch);
  CHECK(rig.shard(0).epoch() == rig.shard(1).epoch());
  CHECK(grown(kServingLosses) == 1);
  CHECK(grown(kExits) == 2);
  // Who said that it died starts it again; nobody is asked to.
  CHECK(rig.restarts() == 0);
  rig.CheckClean();
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

}  // namespace
}  // namespace weft::router

// Cancels that find no room in the engine loop's queue: the loop is held up, and the queue is full
// of events, which a client cannot cause but may meet.

#include <atomic>
#include <catch2/catch.hpp>

#include "absl/cleanup/cleanup.h"
#include "common/limits.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("A full queue has room for replies, and a cancel that finds none is found by its answer",
          "[router][engine]") {
  Gate loop;
  Gate steps;
  std::atomic<int> begun{0};
  std::atomic<int> answered{0};
  RigOptions options = TwoShards();
  options.engine.hang_timeout_ms = 60'000;
  // The engine's thread stands still as it begins to serve again, and the step that it has sent
  // gets its answers once the queue is full.
  options.engine.on_serving = [&begun, wait = loop.waiter()] {
    if (begun.fetch_add(1) == 1) wait();
  };
  options.faults = [&answered, wait = steps.waiter()](Rank, const testing::MockMoment& moment) {
    if (moment.epoch > 1 && (moment.call == "Prefill" || moment.call == "Decode")) {
      wait();
      answered.fetch_add(1);
    }
    return testing::MockFault::kNone;
  };
  EngineRig rig(options);
  const auto open = absl::MakeCleanup([&] {
    loop.Open();
    steps.Open();
  });
  rig.WaitReady();
  auto unwanted = rig.Submit(MakeInput(1, 20, 900));
  auto wanted = rig.Submit(MakeInput(2, 20, 900));
  unwanted->WaitTokens(3);
  wanted->WaitTokens(3);
  rig.RestartShard(1);
  EngineRig::WaitUntil("the loop stands still", [&] { return begun.load() == 2; });
  // A drain is an event that nothing comes of before its time.
  for (size_t i = 0; i <= kEngineEventsMax; ++i) rig.engine().StartDrain(absl::Hours(1));
  unwanted->Cancel(CancelReason::kClientGone);
  steps.Open();
  EngineRig::WaitUntil("both shards answer the step", [&] { return answered.load() >= 2; });
  loop.Open();
  unwanted->WaitEnd(absl::Seconds(30));
  CHECK(absl::IsCancelled(unwanted->status()));
  CHECK(unwanted->ids().size() < 900);
  // It alone was cancelled.
  wanted->WaitEnd();
  CHECK(wanted->ids() == rig.Expected(MakeInput(2, 20, 900)));
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router

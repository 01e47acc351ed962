// What /livez is told of an engine whose shards answer no step: for how long there has been work
// and no step has ended.

#include <catch2/catch.hpp>

#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("An engine whose steps do not end says for how long, and forgets it with the next one",
          "[router][engine]") {
  RigOptions options;
  options.engine.hang_timeout_ms = 60'000;
  EngineRig rig(options);
  rig.WaitReady();
  CHECK(rig.engine().Status().stalled_us == 0);
  Gate gate;
  rig.shard(0).SetFaults([wait = gate.waiter()](const testing::MockMoment& moment) {
    if (moment.call == "Decode" && moment.step >= 5) wait();
    return testing::MockFault::kNone;
  });
  auto sink = rig.Submit(MakeInput(1, 20, 30));
  const auto stalled_for = [&rig](int64_t us) { return rig.engine().Status().stalled_us >= us; };
  EngineRig::WaitUntil("50 ms are told", [&] { return stalled_for(50'000); });
  // It counts on, while nothing else is wrong.
  EngineRig::WaitUntil("200 ms are told", [&] { return stalled_for(200'000); });
  CHECK(rig.engine().Status().state == ServerState::kReady);
  CHECK_FALSE(sink->ended());
  gate.Open();
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(MakeInput(1, 20, 30)));
  // Without work nothing stalls, however long it lasts.
  EngineRig::WaitUntil("nothing is told", [&] { return rig.engine().Status().stalled_us == 0; });
  rig.shard(0).SetFaults(nullptr);
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router

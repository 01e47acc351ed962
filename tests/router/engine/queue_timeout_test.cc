// The time-out of the queue and requests that end before it.

#include <catch2/catch.hpp>

#include "router/errors.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("Requests that end while they wait take their queue time-out with them",
          "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  options.engine.queue_timeout_s = 1;
  options.step_us = 2000;
  EngineRig rig(options);
  rig.WaitReady();
  auto running = rig.Submit(MakeInput(0, 10, 1000));
  running->WaitTokens(1);
  auto gone = rig.Submit(MakeInput(1, 10, 5));
  auto late = rig.Submit(MakeInput(2, 10, 5));
  EngineRig::WaitUntil("both wait",
                       [&] { return MetricValue(rig.probe(), "weft_num_requests_waiting") == 2; });
  gone->Cancel(CancelReason::kClientGone);
  gone->WaitEnd();
  CHECK(absl::IsCancelled(gone->status()));
  // The time-out of the one behind comes after that of the one that is gone.
  late->WaitEnd();
  CHECK(ErrorReason(late->status()) == "QUEUE_TIMEOUT");
  running->WaitEnd();
  CHECK(running->ids() == rig.Expected(MakeInput(0, 10, 1000)));
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router

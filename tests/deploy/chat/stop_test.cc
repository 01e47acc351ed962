// The wish to stop is heard while an answer runs, and only then.

#include "deploy/launcher/chat/stop.h"

#include <catch2/catch.hpp>

#include "common/thread.h"

namespace weft::launcher {
namespace {

TEST_CASE("A wish is heard between Arm and Disarm", "[chat]") {
  Stop stop;
  stop.Request();
  CHECK_FALSE(stop.requested());
  stop.Arm();
  int called = 0;
  {
    const Stop::Hook hook(stop, [&called] { ++called; });
    stop.Request();
    CHECK(called == 1);
  }
  stop.Request();
  CHECK(called == 1);
  // One that came before the call could be ended ends it at once.
  const Stop::Hook late(stop, [&called] { ++called; });
  CHECK(called == 2);
  CHECK(stop.requested());
  stop.Arm();
  CHECK_FALSE(stop.requested());
}

TEST_CASE("Who waits is woken by the wish", "[chat]") {
  Stop stop;
  stop.Arm();
  CHECK_FALSE(stop.WaitFor(absl::Milliseconds(1)));
  Thread presses("presses", [&stop] { stop.Request(); });
  CHECK(stop.WaitFor(absl::Seconds(30)));
}

}  // namespace
}  // namespace weft::launcher

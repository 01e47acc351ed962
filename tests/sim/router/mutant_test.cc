// Built once for each fault planted in the router (tests/mutants/router_*.mutant): the simulation
// must catch it within a minute, by seeds that say nothing of the router as it is.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "common/clock.h"
#include "tests/sim/router/runner.h"

namespace weft::router::sim {
namespace {

constexpr int64_t kLimitUs = 60'000'000;
constexpr double kShrinkSeconds = 5;

TEST_CASE("The router's simulation catches the mutant that it is linked with", "[sim][mutant]") {
  // Of mutants that only several groups show.
  const bool groups = std::getenv("WEFT_ROUTER_SIM_GROUPS") != nullptr;
  const int64_t begin_us = MonotonicClock().NowUs();
  std::string failure;
  for (uint64_t seed = 1; failure.empty(); ++seed) {
    REQUIRE(MonotonicClock().NowUs() - begin_us < kLimitUs);
    const Script script = groups ? MakeGroupsScript(seed) : MakeScript(seed);
    failure = RunScript(script).failure;
    if (failure.empty()) continue;
    std::cout << "seed " << seed << ", after "
              << static_cast<double>(MonotonicClock().NowUs() - begin_us) * 1e-6
              << " s: " << failure;
    const Script small = Shrink(script, failure, kShrinkSeconds, nullptr);
    std::cout << "shrunk from " << script.actions.size() << " to " << small.actions.size()
              << " actions:\n"
              << ToText(small);
    CHECK(small.actions.size() <= script.actions.size());
  }
}

}  // namespace
}  // namespace weft::router::sim

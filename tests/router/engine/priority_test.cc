// The priority that a request runs with: what it asks for, or its tenant's default.

#include <catch2/catch.hpp>

#include "common/clock.h"
#include "router/text/prepare.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("A request that asks for no priority runs with its tenant's", "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  options.step_us = 2000;
  EngineRig rig(options);
  rig.WaitReady();
  auto tenant = std::make_shared<Tenant>();
  tenant->name = "one";
  tenant->cache_salt = 1;
  tenant->limits.priority_default = 5;
  tenant->meter = std::make_shared<TenantMeter>("one", tenant->limits, &MonotonicClock());
  const auto submit = [&](std::optional<int32_t> priority, uint64_t seed, uint32_t tokens) {
    GenerateInput input = MakeInput(seed, 10, tokens);
    input.priority = priority;
    auto permit = rig.engine().Enter(tenant, TextBytes(input));
    REQUIRE(permit.ok());
    auto sink = std::make_shared<FakeSink>();
    sink->Attach(rig.engine().Submit(std::move(input), *std::move(permit), sink));
    return sink;
  };
  const auto waiting = [&](double count) {
    EngineRig::WaitUntil("they wait", [&] {
      return MetricValue(rig.probe(), "weft_num_requests_waiting") == count;
    });
  };
  auto running = submit(0, 1, 1000);
  running->WaitTokens(1);
  // In the order in which they come, but for their priorities.
  auto least = submit(4, 2, 300);
  waiting(1);
  auto by_default = submit(std::nullopt, 3, 3);
  waiting(2);
  auto most = submit(6, 4, 3);
  waiting(3);
  for (const auto& sink : {running, least, by_default, most}) sink->WaitEnd();
  // Who came later and waited for less time went first.
  const auto queue_us = [](const auto& sink) { return sink->finished().queue_us; };
  CHECK(queue_us(most) < queue_us(by_default));
  CHECK(queue_us(by_default) < queue_us(least));
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router

// One engine, one shard, no faults: limits, deadlines, and the ends that others bring.

#include <catch2/catch.hpp>

#include "common/clock.h"
#include "router/errors.h"
#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("Requests over the queue limit are refused at once with a time to come back",
          "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 2;
  options.engine.running_max = 2;
  options.engine.queue_requests_max = 3;
  options.step_us = 3000;
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < 20; ++i) sinks.push_back(rig.Submit(MakeInput(i, 10, 60)));
  int refused = 0;
  for (uint64_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->WaitEnd();
    if (sinks[i]->status().ok()) {
      CHECK(sinks[i]->ids() == rig.Expected(MakeInput(i, 10, 60)));
      continue;
    }
    ++refused;
    CHECK(absl::IsResourceExhausted(sinks[i]->status()));
    CHECK(ErrorReason(sinks[i]->status()) == "QUEUE_FULL");
    CHECK(RetryAfter(sinks[i]->status()) >= absl::Seconds(1));
  }
  CHECK(refused >= 13);
  CHECK(refused < 20);
  rig.CheckClean();
}

TEST_CASE("The queue's tokens are limited apart from its requests", "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  options.engine.queue_tokens_max = 100;
  options.step_us = 3000;
  EngineRig rig(options);
  rig.WaitReady();
  auto running = rig.Submit(MakeInput(0, 90, 100));
  running->WaitTokens(1);
  auto waiting = rig.Submit(MakeInput(1, 90, 2));
  EngineRig::WaitUntil("it waits",
                       [&] { return MetricValue(rig.probe(), "weft_num_requests_waiting") == 1; });
  auto refused = rig.Submit(MakeInput(2, 20, 2));
  refused->WaitEnd();
  CHECK(ErrorReason(refused->status()) == "QUEUE_TOKENS_FULL");
  running->WaitEnd();
  waiting->WaitEnd();
  CHECK(waiting->status().ok());
  rig.CheckClean();
}

TEST_CASE("What only the model decides is refused by field", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  const auto field = [&](const GenerateInput& input) {
    auto sink = rig.Submit(input);
    sink->WaitEnd();
    CHECK(absl::IsInvalidArgument(sink->status()));
    return ErrorField(sink->status()).value_or("none");
  };
  CHECK(field(MakeInput(0, 1024, 1)) == "prompt");
  CHECK(field(MakeInput(0, 1000, 25)) == "max_tokens");
  GenerateInput input = MakeInput(0, 10, 5);
  input.prompt = std::vector<TokenId>{1, 2, 257};
  CHECK(field(input) == "prompt");
  input.prompt = std::vector<TokenId>();
  CHECK(field(input) == "prompt");
  input = MakeInput(0, 10, 5);
  input.sampling.logit_bias = {{300, 1.0f}};
  CHECK(field(input) == "logit_bias");
  CHECK(rig.shard(0).stats().steps == 0);
  // Without a limit an answer may be as long as the context leaves.
  GenerateInput open = MakeInput(0, 1000, 0);
  open.max_tokens.reset();
  auto sink = rig.Submit(open);
  sink->WaitEnd();
  CHECK(sink->ids().size() == 24);
}

TEST_CASE("Requests of one correlation id run side by side, and a cancel ends them all",
          "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput input = MakeInput(0, 10, 900);
  input.correlation_id = "mine";
  auto first = rig.Submit(input);
  auto second = rig.Submit(input);
  input.correlation_id = "other";
  input.max_tokens = 20;
  auto third = rig.Submit(input);
  Tenant somebody = *Anonymous();
  somebody.index = 7;
  CHECK(!rig.engine().Cancel(somebody, "mine"));  // a tenant ends its own alone
  CHECK(rig.engine().Cancel(*Anonymous(), "mine"));
  first->WaitEnd();
  second->WaitEnd();
  CHECK(absl::IsCancelled(first->status()));
  CHECK(absl::IsCancelled(second->status()));
  CHECK(!rig.engine().Cancel(*Anonymous(), "mine"));
  third->WaitEnd();
  CHECK(third->status().ok());
  rig.CheckClean();
}

TEST_CASE("A request that waits too long for its first step ends and frees its place",
          "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  options.engine.queue_timeout_s = 1;
  options.step_us = 3000;
  EngineRig rig(options);
  rig.WaitReady();
  const std::string series = "weft_requests_cancelled_total{by=\"queue_timeout\",phase=\"queue\"}";
  const Grown grown(rig.probe(), {series});
  auto running = rig.Submit(MakeInput(0, 10, 900));
  running->WaitTokens(1);
  auto waiting = rig.Submit(MakeInput(1, 10, 5));
  waiting->WaitEnd();
  CHECK(ErrorReason(waiting->status()) == "QUEUE_TIMEOUT");
  CHECK(RetryAfter(waiting->status()).has_value());
  CHECK(!running->ended());
  running->WaitEnd();
  CHECK(running->status().ok());
  CHECK(grown(series) == 1);
  rig.CheckClean();
}

TEST_CASE("Texts and unread answers share one budget, and whoever is alone fits",
          "[router][engine]") {
  RigOptions options;
  options.engine.text_bytes_max = 100'000;
  EngineRig rig(options);
  rig.WaitReady();
  absl::StatusOr<Admission::Permit> large = rig.engine().Enter(Anonymous(), 1'000'000);
  REQUIRE(large.ok());
  const absl::StatusOr<Admission::Permit> second = rig.engine().Enter(Anonymous(), 10);
  REQUIRE(!second.ok());
  CHECK(ErrorReason(second.status()) == "TEXT_BYTES_FULL");
  large->Release();
  CHECK(rig.engine().Enter(Anonymous(), 10).ok());
}

TEST_CASE("A deadline ends a request wherever it is", "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  EngineRig rig(options);
  rig.WaitReady();
  const int64_t now_us = MonotonicClock().NowUs();
  GenerateInput running = MakeInput(0, 10, 900);
  running.deadline_us = now_us + 200'000;
  GenerateInput waiting = MakeInput(1, 10, 5);
  waiting.deadline_us = now_us + 100'000;
  GenerateInput past = MakeInput(2, 10, 5);
  past.deadline_us = now_us - 1;
  auto a = rig.Submit(running);
  a->WaitTokens(1);
  auto b = rig.Submit(waiting);
  auto c = rig.Submit(past);
  for (auto& sink : {a, b, c}) {
    sink->WaitEnd();
    CHECK(absl::IsDeadlineExceeded(sink->status()));
  }
  CHECK(MonotonicClock().NowUs() - now_us < 2'000'000);
  CHECK(b->ids().empty());
  rig.CheckClean();
}

TEST_CASE("Draining finishes what runs, refuses what comes, and ends what is left at the deadline",
          "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  auto quick = rig.Submit(MakeInput(0, 10, 30));
  auto slow = rig.Submit(MakeInput(1, 10, 1000));
  slow->WaitTokens(1);
  rig.engine().StartDrain(absl::Milliseconds(400));
  // One that comes later does not put the end off.
  rig.engine().StartDrain(absl::Minutes(1));
  CHECK(rig.engine().Status().state == ServerState::kDraining);
  auto late = rig.Submit(MakeInput(2, 10, 30));
  late->WaitEnd();
  CHECK(ErrorReason(late->status()) == "DRAINING");
  CHECK(rig.engine().WaitIdle(absl::Seconds(20)));
  CHECK(quick->ids() == rig.Expected(MakeInput(0, 10, 30)));
  CHECK(quick->cancelled() == CancelReason::kNone);
  REQUIRE(slow->ended());
  CHECK(absl::IsUnavailable(slow->status()));
  // The access log's cause is "admin", as OPERATIONS.md says.
  CHECK(slow->cancelled() == CancelReason::kAdmin);
}

TEST_CASE("Shutting down ends every request once", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < 50; ++i) sinks.push_back(rig.Submit(MakeInput(i, 10, 900)));
  rig.engine().Shutdown();
  for (auto& sink : sinks) {
    REQUIRE(sink->ended());
    CHECK(absl::IsUnavailable(sink->status()));
  }
  auto late = rig.Submit(MakeInput(0, 10, 5));
  CHECK(late->ended());
  // The shard was left and waits for the next router.
  CHECK(rig.shard(0).epoch() == 0);
}

}  // namespace
}  // namespace weft::router

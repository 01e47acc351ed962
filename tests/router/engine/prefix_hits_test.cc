// A prompt that was served before: how many of its tokens came from the prefix cache, from the
// scheduler's tables up to the answer's head and the metrics.

#include <catch2/catch.hpp>

#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("An answer says how many of its prompt's tokens the prefix cache held",
          "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  const uint32_t block_tokens = rig.shape().block_tokens;
  REQUIRE(block_tokens == 16);
  const auto cached = [&rig](uint64_t seed, size_t prompt_tokens) {
    const GenerateInput input = MakeInput(seed, prompt_tokens, 5);
    auto sink = rig.Submit(input);
    sink->WaitEnd();
    CHECK(sink->ids() == rig.Expected(input));
    CHECK(sink->started().prompt_tokens == prompt_tokens);
    return sink->started().cached_tokens;
  };
  const double before = MetricValue(rig.probe(), "weft_prefix_cache_hits_total");
  CHECK(cached(1, 100) == 0);
  // Whole blocks only: 6 of 16 tokens, and 4 that are computed anew.
  CHECK(cached(1, 100) == 96);
  // The last token is never taken from the cache: it gives the first one of the answer.
  CHECK(cached(1, 96) == 80);
  CHECK(cached(1, 97) == 96);
  // Shorter than a block, longer than what is there, another one.
  CHECK(cached(1, 16) == 0);
  CHECK(cached(1, 120) == 96);
  CHECK(cached(2, 100) == 0);
  CHECK(MetricValue(rig.probe(), "weft_prefix_cache_hits_total") - before == 96 + 80 + 96 + 96);
  CHECK(rig.shard(0).stats().prefix_hits == 4);
  rig.CheckClean();
}

TEST_CASE("After a flush a prompt comes in cold, and what runs goes on", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  const auto cached = [&rig](const GenerateInput& input) {
    auto sink = rig.Submit(input);
    sink->WaitEnd();
    CHECK(sink->ids() == rig.Expected(input));
    return sink->started().cached_tokens;
  };
  const GenerateInput prompt = MakeInput(1, 100, 5);
  CHECK(cached(prompt) == 0);
  CHECK(cached(prompt) == 96);
  // It is behind its first token, and far from its last.
  const GenerateInput running = MakeInput(2, 100, 200);
  auto sink = rig.Submit(running);
  sink->WaitTokens(1);
  CHECK(rig.engine().FlushPrefixCache() == absl::OkStatus());
  CHECK(cached(prompt) == 0);
  CHECK(cached(prompt) == 96);
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(running));
  CHECK(rig.engine().FlushPrefixCache() == absl::OkStatus());
  CHECK(cached(running) == 0);
  rig.CheckClean();
  rig.engine().Shutdown();
  CHECK(rig.engine().FlushPrefixCache() == absl::OkStatus());
}

TEST_CASE("Before there is an engine a flush says that the server starts", "[router][engine]") {
  Probe probe;
  const std::unique_ptr<Core> core = MakeCore(&probe);
  CHECK(absl::IsUnavailable(core->FlushPrefixCache()));
}

TEST_CASE("Without a prefix cache an answer says that nothing was cached", "[router][engine]") {
  RigOptions options;
  options.engine.prefix_cache = false;
  EngineRig rig(options);
  rig.WaitReady();
  for (int i = 0; i < 2; ++i) {
    auto sink = rig.Submit(MakeInput(1, 100, 5));
    sink->WaitEnd();
    CHECK(sink->started().cached_tokens == 0);
  }
  CHECK(rig.shard(0).stats().prefix_hits == 0);
}

}  // namespace
}  // namespace weft::router

// One engine, one shard whose model has KV groups with windows: the shard checks that every row
// finds what its windows show, and the answers tell whether it read the right blocks.

#include <catch2/catch.hpp>
#include <random>

#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("A pool of one window, a chunk and two blocks serves a context many times its size",
          "[router][engine]") {
  RigOptions options;
  options.shape.kv_windows = {40};
  options.shape.running_max = 4;
  options.shape.step_tokens_max = 64;
  options.shape.kv_blocks = (40 + 64) / 16 + 2;
  options.shape.context_tokens = 1024;
  EngineRig rig(options);
  rig.WaitReady();
  GenerateInput input = MakeInput(3, 900, 120);
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  REQUIRE(sink->status().ok());
  CHECK(sink->ids() == rig.Expected(input));
  rig.CheckClean();
  CHECK(rig.shard(0).stats().blocks_left > 50);
}

TEST_CASE("Streams of a model with whole and windowed KV groups have their answers",
          "[router][engine]") {
  RigOptions options;
  options.shape.kv_windows = {24, 0, 1, 200};
  options.shape.kv_blocks = 400;  // too few for all: some wait, some are preempted
  options.shape.running_max = 32;
  options.shape.step_tokens_max = 96;
  options.shape.context_tokens = 512;
  options.shape.vocabulary.eos_permille = 5;
  EngineRig rig(options);
  rig.WaitReady();
  const Grown grown(rig.probe(), {"weft_num_preemptions_total"});
  const uint64_t seed = 20261121;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  // How many run at once, and so whether one has to give way or finds what another has left,
  // depends on how fast they come in.
  constexpr int kRoundsMax = 20;
  const auto seen = [&] {
    return grown("weft_num_preemptions_total") > 0 && rig.shard(0).stats().prefix_hits > 0;
  };
  for (int round = 0; round < kRoundsMax && !seen(); ++round) {
    std::vector<GenerateInput> inputs;
    std::vector<std::shared_ptr<FakeSink>> sinks;
    for (uint64_t i = 0; i < 100; ++i) {
      inputs.push_back(MakeInput(i % 20, 1 + random() % 300, 1 + random() % 150));
      sinks.push_back(rig.Submit(inputs.back()));
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      INFO("round " << round << ", stream " << i);
      sinks[i]->WaitEnd();
      REQUIRE(sinks[i]->status().ok());
      CHECK(sinks[i]->ids() == rig.Expected(inputs[i]));
    }
  }
  rig.CheckClean();
  const testing::MockShardStats stats = rig.shard(0).stats();
  CHECK(stats.prefix_hits > 0);
  CHECK(stats.blocks_left > 100);
  CHECK(grown("weft_num_preemptions_total") > 0);
  CHECK(MetricValue(rig.probe(), "weft_kv_group_blocks{group=\"3\",state=\"cached\"}") > 0);
  CHECK(MetricValue(rig.probe(), "weft_kv_group_blocks{group=\"3\",state=\"used\"}") == 0);
}

}  // namespace
}  // namespace weft::router

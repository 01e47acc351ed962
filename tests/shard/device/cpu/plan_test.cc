// The rules that join operations on the CPU are exact: whatever is joined, a model's numbers are
// those of the plain list of operations, to the bit.

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "shard/model/decoder.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

struct Trace {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;

  bool operator==(const Trace& other) const {
    return ids == other.ids && logprobs == other.logprobs;
  }
};

// A prompt in two chunks, the second beside a decoding sequence, then decode steps.
Trace RunModel(const GroupOptions& options) {
  RankGroup group(options);
  StepMaker maker = group.Maker();
  SamplingParams sampling;
  sampling.temperature = 0.8f;
  sampling.seed = 5;
  sampling.logprobs = true;
  Trace trace;
  const auto run = [&] {
    const StepResult result = group.Run(maker.Take());
    trace.ids.insert(trace.ids.end(), result.ids.begin(), result.ids.end());
    for (const SampledLogprobs& row : result.logprobs) trace.logprobs.push_back(row.logprob);
  };
  std::vector<TokenId> prompt(40);
  std::iota(prompt.begin(), prompt.end(), 3);
  maker.Start(0, sampling, 7);
  maker.Chunk(0, {prompt.begin(), prompt.begin() + 7}, true);
  maker.Start(1, sampling, 40);
  maker.Chunk(1, {prompt.begin(), prompt.begin() + 20}, false);
  run();
  maker.Decode(0);
  maker.Chunk(1, {prompt.begin() + 20, prompt.end()}, true);
  run();
  for (int i = 0; i < 6; ++i) {
    maker.Decode(0);
    maker.Decode(1);
    run();
  }
  return trace;
}

TEST_CASE("Joined operations give the plain list's numbers to the bit", "[shard][compute][plan]") {
  for (const std::string name : {"llama_biased", "llama_mixed"}) {
    for (uint32_t world = 1; world <= 3; ++world) {
      DYNAMIC_SECTION(name << " on " << world) {
        GroupOptions options;
        options.model = test::GoldenModelPath(name);
        options.world = world;
        options.threads = 2;
        options.cpu_rules = {};
        const Trace plain = RunModel(options);
        REQUIRE(plain.ids.size() == 15);
        REQUIRE(plain.logprobs.size() == 15);
        for (const PlanRule* const& rule : CpuPlanRules()) {
          INFO("rule " << rule->name);
          CHECK(rule->exact);
          options.cpu_rules = {&rule, 1};
          CHECK(RunModel(options) == plain);
        }
        options.cpu_rules = CpuPlanRules();
        CHECK(RunModel(options) == plain);
      }
    }
  }
}

TEST_CASE("Every rule of the CPU joins something in some group", "[shard][compute][plan]") {
  DecoderSpec spec;
  spec.layers = 2;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  const std::vector<size_t> alone = CountFits(CpuPlanRules(), RecordForward(spec, 1));
  const std::vector<size_t> in_two = CountFits(CpuPlanRules(), RecordForward(spec, 2));
  for (size_t i = 0; i < alone.size(); ++i) {
    INFO(CpuPlanRules()[i]->name);
    CHECK(alone[i] + in_two[i] > 0);
  }
}

}  // namespace
}  // namespace weft::shard

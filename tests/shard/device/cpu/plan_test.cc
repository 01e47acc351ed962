// The rules that join operations on the CPU are exact: whatever is joined, a model's numbers are
// those of the plain list of operations, to the bit.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "shard/model/decoder.h"
#include "tests/shard/device/cpu/plan_trace.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

TEST_CASE("Joined operations give the plain list's numbers to the bit", "[shard][compute][plan]") {
  for (const std::string name : {"llama_biased", "llama_mixed"}) {
    for (uint32_t world = 1; world <= 3; ++world) {
      DYNAMIC_SECTION(name << " on " << world) {
        GroupOptions options;
        options.model = test::GoldenModelPath(name);
        options.world = world;
        options.threads = 2;
        options.cpu_rules = {};
        const PlanTrace plain = RunScript(options);
        REQUIRE(plain.ids.size() == 15);
        REQUIRE(plain.logprobs.size() == 15);
        for (const PlanRule* const& rule : CpuPlanRules()) {
          INFO("rule " << rule->name);
          CHECK(rule->exact);
          options.cpu_rules = {&rule, 1};
          CHECK(RunScript(options) == plain);
        }
        options.cpu_rules = CpuPlanRules();
        CHECK(RunScript(options) == plain);
      }
    }
  }
}

TEST_CASE("Every rule of the CPU joins something in some group", "[shard][compute][plan]") {
  DecoderSpec spec;
  spec.layers = 2;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  LayerPlan of_one = RecordForward(spec, 1);
  LayerPlan of_two = RecordForward(spec, 2);
  const std::vector<size_t> alone = ApplyRules(CpuPlanRules(), &of_one);
  const std::vector<size_t> in_two = ApplyRules(CpuPlanRules(), &of_two);
  for (size_t i = 0; i < alone.size(); ++i) {
    INFO(CpuPlanRules()[i]->name);
    CHECK(alone[i] + in_two[i] > 0);
  }
}

}  // namespace
}  // namespace weft::shard

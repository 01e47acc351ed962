// The tiny models and the demo model against Hugging Face transformers in float32.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/shard/compute/demo_model.h"
#include "tests/shard/compute/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

std::vector<TokenId> Ids(const boost::json::value& array) {
  std::vector<TokenId> ids;
  for (const boost::json::value& id : array.as_array()) ids.push_back(id.to_number<TokenId>());
  return ids;
}

SamplingParams GreedyWithLogprobs() {
  SamplingParams sampling;
  sampling.logprobs = true;
  sampling.top_logprobs = kTopLogprobsMax;
  return sampling;
}

// Greedy continuation of `prompt`, `count` ids.
std::vector<TokenId> Greedy(RankGroup& group, const std::vector<TokenId>& prompt, size_t count) {
  StepMaker maker(group.kv_blocks());
  maker.Start(0, SamplingParams{});
  maker.Chunk(0, prompt, /*sample=*/true);
  std::vector<TokenId> ids;
  while (true) {
    ids.push_back(group.Run(maker.Take()).ids.at(0));
    if (ids.size() == count) break;
    maker.Decode(0);
  }
  maker.Drop(0);
  (void)group.Run(maker.Take());
  return ids;
}

// Largest difference between our top log-probabilities after each recorded prefix and the golden's.
double LargestLogprobError(RankGroup& group, const boost::json::value& golden_case) {
  const std::vector<TokenId> prompt = Ids(golden_case.at("prompt_ids"));
  double error = 0;
  for (const auto& [position, values] : golden_case.at("logprobs").as_object()) {
    const size_t length = std::stoul(std::string(position)) + 1;
    StepMaker maker(group.kv_blocks());
    maker.Start(0, GreedyWithLogprobs());
    maker.Chunk(0, std::vector<TokenId>(prompt.begin(), prompt.begin() + length), true);
    const StepResult result = group.Run(maker.Take());
    REQUIRE(result.logprobs.size() == 1);
    REQUIRE(result.logprobs[0].top.size() == kTopLogprobsMax);
    for (const auto& [id, logprob] : result.logprobs[0].top) {
      error = std::max(error, std::abs(values.as_array()[id].to_number<double>() - logprob));
    }
    maker.Drop(0);
    (void)group.Run(maker.Take());
  }
  return error;
}

void CheckModel(const std::string& name, const GroupOptions& options) {
  RankGroup group(options);
  const boost::json::value golden = test::ReadGolden(name + "/golden.json");
  for (const boost::json::value& golden_case : golden.at("cases").as_array()) {
    const std::vector<TokenId> prompt = Ids(golden_case.at("prompt_ids"));
    const std::vector<TokenId> expected = Ids(golden_case.at("greedy_ids"));
    INFO("prompt of " << prompt.size());
    CHECK(LargestLogprobError(group, golden_case) < 1e-3);
    CHECK(Greedy(group, prompt, expected.size()) == expected);
  }
}

TEST_CASE("Tiny models agree with transformers in float32 on one to four ranks",
          "[shard][compute][golden]") {
  for (const std::string& name : test::GoldenModels()) {
    for (uint32_t world = 1; world <= 4; ++world) {
      DYNAMIC_SECTION(name << " on " << world) {
        GroupOptions options;
        options.model = test::GoldenModelPath(name);
        options.world = world;
        CheckModel(name, options);
      }
    }
  }
}

TEST_CASE("Tiny models agree with transformers on every instruction set",
          "[shard][compute][golden]") {
  for (const std::string& isa : SupportedInstructionSets()) {
    for (const std::string& name : test::GoldenModels()) {
      DYNAMIC_SECTION(name << " on " << isa) {
        GroupOptions options;
        options.model = test::GoldenModelPath(name);
        options.isa = isa;
        options.threads = 2;
        RankGroup group(options);
        CHECK(group.rank(0).isa() == isa);
        CheckModel(name, options);
      }
    }
  }
}

struct Agreement {
  size_t cases = 0;
  size_t equal = 0;
  // Differences that begin where the golden's top two logits are further apart than this.
  size_t unexplained = 0;
  double largest_margin = 0;
};

Agreement CompareDemo(NumberType dtype, double margin) {
  GroupOptions options;
  options.model = DemoModelPath();
  options.dtype = dtype;
  options.threads = 2;
  RankGroup group(options);
  const boost::json::value golden = test::ReadGolden("demo/greedy.json");
  Agreement agreement;
  for (const boost::json::value& golden_case : golden.at("cases").as_array()) {
    const std::vector<TokenId> expected = Ids(golden_case.at("ids"));
    const std::vector<TokenId> ids =
        Greedy(group, Ids(golden_case.at("prompt_ids")), expected.size());
    ++agreement.cases;
    if (ids == expected) {
      ++agreement.equal;
      continue;
    }
    const auto at = std::mismatch(ids.begin(), ids.end(), expected.begin()).first - ids.begin();
    const double at_margin = golden_case.at("margins").as_array()[at].to_number<double>();
    agreement.largest_margin = std::max(agreement.largest_margin, at_margin);
    if (at_margin >= margin) ++agreement.unexplained;
  }
  std::printf("demo model, %s: %zu of %zu continue as transformers; largest margin flipped %g\n",
              NumberTypeName(dtype), agreement.equal, agreement.cases, agreement.largest_margin);
  return agreement;
}

TEST_CASE("The demo model in float32 continues as transformers", "[shard][compute][demo]") {
  if (!std::filesystem::exists(DemoModelPath())) {
    FAIL("no demo model at " << DemoModelPath() << "; deploy/setup.sh fetches it");
  }
  const Agreement agreement = CompareDemo(NumberType::kFloat32, 1e-4);
  CHECK(agreement.cases == 50);
  CHECK(agreement.unexplained == 0);
}

TEST_CASE("The demo model in its default type mostly continues as in float32",
          "[shard][compute][demo]") {
  if (!std::filesystem::exists(DemoModelPath())) {
    FAIL("no demo model at " << DemoModelPath() << "; deploy/setup.sh fetches it");
  }
  const Agreement agreement = CompareDemo(NumberType::kAuto, 1.0);
  CHECK(agreement.cases == 50);
  CHECK(agreement.equal >= 40);
}

}  // namespace
}  // namespace weft::shard

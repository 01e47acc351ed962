#include "tests/shard/device/cpu/golden_check.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "tests/shard/weights/goldens.h"
#include "tests/support/demo_model.h"

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

// A prompt in steps of at most so many tokens, which every group of these tests can take.
constexpr size_t kChunkTokens = 150;

// The step of the prompt's last chunk; those before it have run.
StepBatch PromptStep(RankGroup& group, StepMaker& maker, const std::vector<TokenId>& prompt) {
  size_t begin = 0;
  for (; begin + kChunkTokens < prompt.size(); begin += kChunkTokens) {
    const auto first = prompt.begin() + static_cast<ptrdiff_t>(begin);
    maker.Chunk(0, {first, first + kChunkTokens}, /*sample=*/false);
    (void)group.Run(maker.Take());
  }
  maker.Chunk(0, {prompt.begin() + static_cast<ptrdiff_t>(begin), prompt.end()}, /*sample=*/true);
  return maker.Take();
}

// Greedy continuation of `prompt`, `count` ids.
std::vector<TokenId> Greedy(RankGroup& group, const std::vector<TokenId>& prompt, size_t count) {
  StepMaker maker = group.Maker();
  maker.Start(0, SamplingParams{});
  std::vector<TokenId> ids = {group.Run(PromptStep(group, maker, prompt)).ids.at(0)};
  while (ids.size() < count) {
    maker.Decode(0);
    ids.push_back(group.Run(maker.Take()).ids.at(0));
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
    StepMaker maker = group.Maker();
    maker.Start(0, GreedyWithLogprobs());
    const std::vector<TokenId> prefix(prompt.begin(),
                                      prompt.begin() + static_cast<ptrdiff_t>(length));
    const StepResult result = group.Run(PromptStep(group, maker, prefix));
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

}  // namespace

void CheckModel(const std::string& name, const GroupOptions& options, double logprob_error,
                bool greedy) {
  RankGroup group(options);
  const boost::json::value golden = test::ReadGolden(name + "/golden.json");
  for (const boost::json::value& golden_case : golden.at("cases").as_array()) {
    const std::vector<TokenId> prompt = Ids(golden_case.at("prompt_ids"));
    const std::vector<TokenId> expected = Ids(golden_case.at("greedy_ids"));
    INFO("prompt of " << prompt.size());
    CHECK(LargestLogprobError(group, golden_case) < logprob_error);
    if (greedy) CHECK(Greedy(group, prompt, expected.size()) == expected);
  }
}

double Bfloat16Error(const std::string& name) {
  // Where two experts' numbers are near each other, a token takes another one in bfloat16 than in
  // float32, and what that one makes is another vector.
  for (const char* const family : {"_moe", "mixtral", "gpt_oss", "deepseek"}) {
    if (absl::StrContains(name, family)) return 4;
  }
  // The largest has the widest sums, of weights that lie between bfloat16's numbers.
  return name == "llama_super_blocks" ? 0.8 : 0.6;
}

Agreement CompareDemo(GroupOptions options, double margin) {
  options.model = test::DemoModelOrSkip();
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
  std::printf(
      "demo model, %s, %s: %zu of %zu continue as transformers; largest margin flipped %g\n",
      options.cuda ? "CUDA" : "CPU", NumberTypeName(options.dtype), agreement.equal,
      agreement.cases, agreement.largest_margin);
  return agreement;
}

}  // namespace weft::shard

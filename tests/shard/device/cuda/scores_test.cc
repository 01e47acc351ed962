// Scores of a prompt's tokens on a GPU: those of the CPU in float32, and with --deterministic to
// the bit what the same tokens had as output, whatever chunks the prompt is cut into.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

constexpr uint32_t kTop = 5;
// More than rows that may sample at a time: they go through the tail in slices.
constexpr uint32_t kPrompt = 150;

GroupOptions Options(const std::string& name) {
  GroupOptions options;
  options.model = test::GoldenModelPath(name);
  options.threads = 4;
  return options;
}

std::vector<TokenId> RandomPrompt(uint32_t vocab) {
  std::mt19937_64 random(kernels::cuda::testing::Seed());
  std::vector<TokenId> ids(kPrompt);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab);
  return ids;
}

// Of a prompt in chunks of `size`; beside it another sequence decodes.
StepScores Score(RankGroup& group, const std::vector<TokenId>& ids, uint32_t size) {
  StepMaker maker = group.Maker();
  maker.Start(0, SamplingParams{});
  maker.Chunk(0, {1, 2, 3}, true);
  (void)group.Run(maker.Take());
  maker.Start(1, SamplingParams{});
  StepScores scores;
  for (uint32_t begin = 0; begin < ids.size(); begin += size) {
    const auto end = std::min<uint32_t>(begin + size, static_cast<uint32_t>(ids.size()));
    const bool last = end == ids.size();
    maker.Decode(0);
    maker.Chunk(1, std::vector<TokenId>(ids.begin() + begin, ids.begin() + end), last);
    const uint32_t targets_end = last ? end : end + 1;
    if (targets_end > begin + 1) {
      maker.Score(0, std::vector<TokenId>(ids.begin() + begin + 1, ids.begin() + targets_end),
                  kTop);
    }
    const StepResult result = group.Run(maker.Take());
    const StepScores& some = result.scores;
    scores.logprobs.insert(scores.logprobs.end(), some.logprobs.begin(), some.logprobs.end());
    scores.ranks.insert(scores.ranks.end(), some.ranks.begin(), some.ranks.end());
    scores.top.insert(scores.top.end(), some.top.begin(), some.top.end());
  }
  maker.Drop(0);
  maker.Drop(1);
  (void)group.Run(maker.Take());
  return scores;
}

TEST_CASE("Scores on a GPU are those of the CPU", "[cuda][model][scores]") {
  for (const std::string& name : test::GoldenModels()) {
    DYNAMIC_SECTION(name) {
      RankGroup cpu(Options(name));
      GroupOptions options = Options(name);
      options.cuda = true;
      RankGroup gpu(options);
      const std::vector<TokenId> ids = RandomPrompt(cpu.spec().vocab);
      const StepScores expected = Score(cpu, ids, kPrompt);
      for (const uint32_t size : {kPrompt, 33u, 1u}) {
        CAPTURE(size);
        const StepScores found = Score(gpu, ids, size);
        REQUIRE(found.logprobs.size() == expected.logprobs.size());
        REQUIRE(found.top.size() == expected.top.size());
        size_t other_ranks = 0;
        for (size_t i = 0; i < found.logprobs.size(); ++i) {
          CHECK(std::abs(found.logprobs[i] - expected.logprobs[i]) < 2e-3);
          other_ranks += found.ranks[i] != expected.ranks[i] ? 1 : 0;
        }
        // Sums in another order let neighbours change places now and then.
        CHECK(other_ranks <= found.ranks.size() / 5);
        for (size_t i = 0; i < found.top.size(); ++i) {
          CHECK(std::abs(found.top[i].second - expected.top[i].second) < 2e-3);
        }
      }
    }
  }
}

TEST_CASE("Deterministic: a token has the score as prompt that it had as output",
          "[cuda][model][scores]") {
  for (const std::string name : {"llama_nine_heads_f16", "llama_q4_1"}) {
    DYNAMIC_SECTION(name) {
      GroupOptions options = Options(name);
      options.cuda = true;
      options.dtype = NumberType::kBfloat16;
      options.deterministic = true;
      RankGroup group(options);
      SamplingParams sampling;
      sampling.logprobs = true;
      StepMaker maker = group.Maker();
      maker.Start(0, sampling);
      std::vector<TokenId> log = RandomPrompt(group.spec().vocab);
      maker.Chunk(0, log, true);
      std::vector<float> logprobs;
      for (int i = 0; i < 20; ++i) {
        const StepResult result = group.Run(maker.Take());
        log.push_back(result.ids.at(0));
        logprobs.push_back(result.logprobs.at(0).logprob);
        maker.Decode(0);
      }
      group.NewEpoch("");
      for (const uint32_t size : {170u, 64u, 7u}) {
        CAPTURE(size);
        const StepScores scores = Score(group, log, size);
        REQUIRE(scores.logprobs.size() == log.size() - 1);
        CHECK(std::equal(logprobs.begin(), logprobs.end(),
                         scores.logprobs.end() - static_cast<int64_t>(logprobs.size())));
        CHECK(std::all_of(scores.ranks.end() - 20, scores.ranks.end(),
                          [](uint32_t rank) { return rank == 1; }));
      }
    }
  }
}

}  // namespace
}  // namespace weft::shard

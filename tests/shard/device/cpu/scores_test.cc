// Scores of a prompt's tokens in a real forward: to the bit what the same tokens had as output
// (invariant num.row), whatever chunks the prompt is cut into and whoever else is in the step.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

constexpr uint32_t kTop = 5;
constexpr size_t kPrompt = 9;
// More than rows that may sample at a time: they go through the tail in slices.
constexpr size_t kLog = 45;

SamplingParams Greedy() {
  SamplingParams sampling;
  sampling.logprobs = true;
  sampling.top_logprobs = kTop;
  return sampling;
}

std::vector<TokenId> Part(const std::vector<TokenId>& ids, size_t begin, size_t end) {
  return std::vector<TokenId>(ids.begin() + static_cast<int64_t>(begin),
                              ids.begin() + static_cast<int64_t>(end));
}

void Append(const StepScores& from, StepScores* to) {
  to->logprobs.insert(to->logprobs.end(), from.logprobs.begin(), from.logprobs.end());
  to->ranks.insert(to->ranks.end(), from.ranks.begin(), from.ranks.end());
  to->top.insert(to->top.end(), from.top.begin(), from.top.end());
}

struct Rig {
  explicit Rig(const GroupOptions& options) : group(options), maker(group.Maker()) {}

  StepResult Run() { return group.Run(maker.Take()); }

  // A prompt and its greedy answer, and what was said of each token of the answer.
  void Generate() {
    const uint32_t vocab = group.spec().vocab;
    for (size_t i = 0; i < kPrompt; ++i) log.push_back(static_cast<TokenId>(i * i * 31 % vocab));
    maker.Start(0, Greedy(), kPrompt);
    maker.Chunk(0, log, true);
    while (log.size() < kLog) {
      const StepResult result = Run();
      log.push_back(result.ids.at(0));
      answer.logprobs.push_back(result.logprobs.at(0).logprob);
      answer.top.insert(answer.top.end(), result.logprobs[0].top.begin(),
                        result.logprobs[0].top.end());
      if (log.size() < kLog) maker.Decode(0);
    }
    maker.Drop(0);
  }

  // The log as a prompt in slot 1, in chunks of `size`; beside it slot 2 decodes, and slot 3 reads
  // prompts that nobody scores.
  StepScores Score(size_t size, bool beside) {
    StepScores scores;
    if (beside) {
      maker.Start(2, Greedy(), 3);
      maker.Chunk(2, Part(log, 0, 3), true);
      (void)Run();
    }
    maker.Start(1, Greedy(), kLog);
    for (size_t begin = 0; begin < kLog; begin += size) {
      const size_t end = std::min(begin + size, kLog);
      if (beside) maker.Decode(2);
      if (beside) {
        maker.Start(3, Greedy(), 4);
        maker.Chunk(3, Part(log, begin, begin + 1), true);
      }
      const bool last = end == kLog;
      maker.Chunk(1, Part(log, begin, end), last);
      const size_t rows = last ? end - begin - 1 : end - begin;
      if (rows > 0) maker.Score(0, Part(log, begin + 1, begin + 1 + rows), kTop);
      const StepResult result = Run();
      CHECK(result.ids.size() == (beside ? 2u : 0u) + (last ? 1u : 0u));
      if (last) next = result.ids.back();
      Append(result.scores, &scores);
      if (beside) maker.Drop(3);
    }
    maker.Drop(1);
    if (beside) maker.Drop(2);
    (void)Run();
    return scores;
  }

  RankGroup group;
  StepMaker maker;
  std::vector<TokenId> log;
  StepScores answer;
  // What is sampled behind the prompt of Score.
  TokenId next = 0;
};

void CheckScores(const GroupOptions& options) {
  Rig rig(options);
  rig.Generate();
  const StepScores whole = rig.Score(kLog, false);
  REQUIRE(whole.logprobs.size() == kLog - 1);
  // The answer's tokens were greedy: the first of the most likely ones.
  for (size_t i = kPrompt; i < kLog; ++i) CHECK(whole.ranks[i - 1] == 1);
  CHECK(std::equal(rig.answer.logprobs.begin(), rig.answer.logprobs.end(),
                   whole.logprobs.begin() + kPrompt - 1));
  CHECK(std::equal(rig.answer.top.begin(), rig.answer.top.end(),
                   whole.top.begin() + (kPrompt - 1) * kTop));
  const TokenId next = rig.next;
  for (const size_t size : {size_t{1}, size_t{7}, size_t{16}, size_t{33}}) {
    for (const bool beside : {false, true}) {
      INFO("chunks of " << size << (beside ? " beside others" : ""));
      const StepScores cut = rig.Score(size, beside);
      CHECK(cut.logprobs == whole.logprobs);
      CHECK(cut.ranks == whole.ranks);
      CHECK(cut.top == whole.top);
      CHECK(rig.next == next);
    }
  }
}

TEST_CASE("A token has the score as prompt that it had as output",
          "[shard][compute][num.row][scores]") {
  for (const std::string name : {"llama_q4_1", "mistral_window"}) {
    for (uint32_t world = 1; world <= 3; ++world) {
      for (const NumberType dtype : {NumberType::kFloat32, NumberType::kAuto}) {
        DYNAMIC_SECTION(name << " on " << world << " ranks, " << NumberTypeName(dtype)) {
          GroupOptions options;
          options.model = test::GoldenModelPath(name);
          options.world = world;
          options.dtype = dtype;
          options.threads = 2;
          CheckScores(options);
        }
      }
    }
  }
}

TEST_CASE("Tokens of every family have the scores as prompt that they had as output",
          "[shard][compute][num.row][scores][long]") {
  for (const std::string& name : test::GoldenModels()) {
    DYNAMIC_SECTION(name) {
      GroupOptions options;
      options.model = test::GoldenModelPath(name);
      options.threads = 2;
      options.running_max = 4;
      CheckScores(options);
    }
  }
}

}  // namespace
}  // namespace weft::shard

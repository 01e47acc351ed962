// The answer of a step: which scores belong to which chunk, and results that are not those of their
// step.

#include "shard/control/step_answer.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace weft::shard {
namespace {

// Slot 4 decodes; of slot 2 rows 11 and 12 are scored, of slot 5 row 0.
StepBatch Batch() {
  StepBatch batch;
  batch.sequences.resize(3);
  batch.sequences[0].slot = 4;
  batch.sequences[0].sample = true;
  batch.sequences[1].slot = 2;
  batch.sequences[1].start = 10;
  batch.sequences[1].token_count = 3;
  batch.sequences[2].slot = 5;
  batch.scorings = {{1, 1, 0, 2, 2}, {2, 0, 2, 1, 0}};
  batch.targets = {7, 8, 9};
  return batch;
}

StepResult Result() {
  StepResult result;
  result.slots = {4};
  result.ids = {1};
  result.scores.logprobs = {-1, -2, -3};
  result.scores.ranks = {1, 2, 3};
  result.scores.top = {{20, -0.5f}, {21, -0.75f}, {30, -1.5f}, {31, -1.75f}};
  return result;
}

TEST_CASE("A step's answer has the scores of each chunk that asked", "[shard][step_answer]") {
  REQUIRE(CheckResult(Batch(), Result()).ok());
  v1::StepResponse response;
  FillResponse(Batch(), Result(), /*with_ids=*/true, &response);
  REQUIRE(response.scores_size() == 2);
  const v1::PromptScores& first = response.scores(0);
  CHECK(first.slot() == 2);
  CHECK(first.start() == 11);
  REQUIRE(first.logprobs_size() == 2);
  CHECK(first.logprobs(1) == -2);
  CHECK(first.ranks(1) == 2);
  REQUIRE(first.top_ids_size() == 4);
  CHECK(first.top_ids(2) == 30);
  CHECK(first.top_logprobs(3) == -1.75f);
  const v1::PromptScores& second = response.scores(1);
  CHECK(second.slot() == 5);
  CHECK(second.start() == 0);
  CHECK(second.logprobs(0) == -3);
  CHECK(second.top_ids_size() == 0);
  // Another rank says its hash alone.
  v1::StepResponse other;
  FillResponse(Batch(), Result(), /*with_ids=*/false, &other);
  CHECK(other.scores_size() == 0);
  CHECK(other.ids_hash() == response.ids_hash());
}

TEST_CASE("A result without the scores that were asked for is none of its step",
          "[shard][step_answer]") {
  std::vector<StepResult> wrong(5, Result());
  wrong[0].ids.clear();
  wrong[1].scores.logprobs.pop_back();
  wrong[2].scores.ranks.push_back(1);
  wrong[3].scores.top.pop_back();
  wrong[4].scores = StepScores();
  for (const StepResult& result : wrong) {
    CHECK(absl::IsInternal(CheckResult(Batch(), result)));
  }
}

}  // namespace
}  // namespace weft::shard

#include "shard/control/step_answer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/fnv.h"
#include "common/limits.h"

namespace weft::shard {
namespace {

// A score on the wire: two numbers of its own, and an id and a number for each of its tokens.
constexpr size_t kScoreBytesMax = 4 + 5 + kTopLogprobsMax * (5 + 4);
// Beside them an answer has a few bytes for each sequence, and the tokens of those that sample.
static_assert(kStepTokensMax * kScoreBytesMax <= kShardMessageBytesMax / 2,
              "an answer of scores fits into a message");

void FillScores(const StepBatch& batch, const StepScores& scores, v1::StepResponse* response) {
  auto top = scores.top.begin();
  for (const StepScoring& scoring : batch.scorings) {
    const StepSequence& sequence = batch.sequences[scoring.sequence];
    v1::PromptScores* out = response->add_scores();
    out->set_slot(sequence.slot);
    out->set_start(sequence.start + scoring.first);
    const auto logprobs = scores.logprobs.begin() + scoring.begin;
    out->mutable_logprobs()->Add(logprobs, logprobs + scoring.count);
    const auto ranks = scores.ranks.begin() + scoring.begin;
    out->mutable_ranks()->Add(ranks, ranks + scoring.count);
    for (const auto end = top + int64_t{scoring.count} * scoring.top; top != end; ++top) {
      out->add_top_ids(top->first);
      out->add_top_logprobs(top->second);
    }
  }
}

}  // namespace

absl::Status CheckResult(const StepBatch& batch, const StepResult& result) {
  const auto rows = std::count_if(batch.sequences.begin(), batch.sequences.end(),
                                  [](const StepSequence& s) { return s.sample; });
  if (result.ids.size() != static_cast<size_t>(rows) ||
      result.slots.size() != static_cast<size_t>(rows)) {
    return absl::InternalError(
        absl::StrCat("the step sampled ", result.ids.size(), " rows instead of ", rows));
  }
  size_t top = 0;
  for (const StepScoring& scoring : batch.scorings) top += size_t{scoring.count} * scoring.top;
  const StepScores& scores = result.scores;
  if (scores.logprobs.size() != batch.targets.size() ||
      scores.ranks.size() != batch.targets.size() || scores.top.size() != top) {
    return absl::InternalError(absl::StrCat("the step scored ", scores.logprobs.size(),
                                            " rows instead of ", batch.targets.size()));
  }
  return absl::OkStatus();
}

void FillResponse(const StepBatch& batch, const StepResult& result, bool with_ids,
                  v1::StepResponse* response) {
  response->set_epoch(batch.epoch);
  response->set_step(batch.step);
  response->set_ids_hash(HashIds(result.ids));
  response->set_weight_passes(result.weight_passes);
  if (!with_ids) return;
  response->mutable_slots()->Add(result.slots.begin(), result.slots.end());
  response->mutable_ids()->Add(result.ids.begin(), result.ids.end());
  response->mutable_invalid_rows()->Add(result.invalid_rows.begin(), result.invalid_rows.end());
  for (const SampledLogprobs& row : result.logprobs) {
    v1::RowLogprobs* out = response->add_logprobs();
    out->set_row(row.row);
    out->set_logprob(row.logprob);
    for (const auto& [id, logprob] : row.top) {
      weft::v1::TokenLogprob* top = out->add_top();
      top->set_id(id);
      top->set_logprob(logprob);
    }
  }
  FillScores(batch, result.scores, response);
}

}  // namespace weft::shard

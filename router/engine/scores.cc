// The part of the engine loop that collects what shards say of prompts' own tokens. Which rows of a
// chunk are scored follows from what has come so far: a prompt that is prefilled again, because it
// was preempted or its group was lost, goes on where it stood (invariant ahead.count: it has no row
// in flight then).

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/log.h"
#include "router/engine/loop.h"
#include "router/engine/outcome.h"

namespace weft::router {

void EngineLoop::NoteScoring(const PlannedChunk& chunk, const Live& live, SentStep* sent) {
  const PromptScores::Rows rows = live.scores->Wanted(chunk.start, chunk.count);
  if (rows.count() == 0) return;
  sent->scorings.push_back(
      {chunk.id, chunk.slot, rows, std::min(live.scores->top(), vocab_size())});
}

bool EngineLoop::ScoresFit(const SentStep& sent,
                           const weft::shard::v1::StepResponse& response) const {
  if (static_cast<size_t>(response.scores_size()) != sent.scorings.size()) return false;
  for (size_t i = 0; i < sent.scorings.size(); ++i) {
    const SentScoring& scoring = sent.scorings[i];
    const weft::shard::v1::PromptScores& scores = response.scores(static_cast<int>(i));
    const auto rows = static_cast<int>(scoring.rows.count());
    const auto top = static_cast<int>(scoring.rows.count() * scoring.top);
    if (scores.slot() != scoring.slot || scores.start() != scoring.rows.begin ||
        scores.logprobs_size() != rows || scores.ranks_size() != rows ||
        scores.top_ids_size() != top || scores.top_logprobs_size() != top) {
      return false;
    }
    for (const TokenId id : scores.top_ids()) {
      if (id >= vocab_size()) return false;
    }
  }
  return true;
}

void EngineLoop::TakeScores(const std::vector<SentScoring>& scorings,
                            const weft::shard::v1::StepResponse& response, int64_t now_us) {
  for (size_t i = 0; i < scorings.size(); ++i) {
    const SentScoring& scoring = scorings[i];
    const auto live = live_.find(scoring.sequence);
    // Ended before its result came.
    if (live == live_.end()) continue;
    const weft::shard::v1::PromptScores& scores = response.scores(static_cast<int>(i));
    std::vector<std::pair<TokenId, float>> best;
    int at = 0;
    for (int row = 0; row < scores.logprobs_size(); ++row) {
      if (std::isnan(scores.logprobs(row))) {
        WEFT_LOG_ERROR("logits of a prompt not finite id={} step={}", live->second.answer->id(),
                       response.step());
        Fail(scoring.sequence, OutputNotFinite(), now_us);
        break;
      }
      best.clear();
      for (const int end = at + static_cast<int>(scoring.top); at < end; ++at) {
        // -infinity stands for no token.
        if (!std::isfinite(scores.top_logprobs(at))) continue;
        best.emplace_back(scores.top_ids(at), scores.top_logprobs(at));
      }
      live->second.scores->Add(scores.logprobs(row), scores.ranks(row), best);
    }
  }
}

}  // namespace weft::router

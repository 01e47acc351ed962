#include "router/prompt_scores.h"

#include <algorithm>

#include "common/check.h"

namespace weft::router {

PromptScores::Rows PromptScores::Wanted(uint32_t start, uint32_t count) const {
  // Nothing is known of what comes behind the last token.
  const uint32_t end = std::min(start + count, tokens() - 1);
  return {std::min(std::max(start, rows()), end), end};
}

void PromptScores::Add(float logprob, uint32_t rank,
                       absl::Span<const std::pair<TokenId, float>> best) {
  WEFT_CHECK_LT(rows() + 1, tokens());
  logprobs_.push_back(logprob);
  ranks_.push_back(rank);
  best_.insert(best_.end(), best.begin(), best.end());
  best_end_.push_back(static_cast<uint32_t>(best_.size()));
}

size_t PromptScores::bytes() const {
  return ids_.size() * sizeof(ids_[0]) + best_.size() * sizeof(best_[0]) +
         logprobs_.size() * (sizeof(logprobs_[0]) + sizeof(ranks_[0]) + sizeof(best_end_[0]));
}

AnswerToken PromptScores::Token(size_t index) const {
  AnswerToken token;
  token.id = ids_[index];
  token.bytes = table_->Bytes(token.id);
  token.special = table_->IsSpecial(token.id);
  if (index == 0) return token;
  const size_t row = index - 1;
  token.has_logprob = true;
  token.logprob = logprobs_[row];
  for (uint32_t i = row == 0 ? 0 : best_end_[row - 1]; i < best_end_[row]; ++i) {
    token.top.push_back({best_[i].first, best_[i].second, table_->Bytes(best_[i].first)});
  }
  return token;
}

}  // namespace weft::router

// What the model makes of a prompt's own tokens: of each but the first its log-probability behind
// those before it, its rank, and the most likely tokens in its place. Filled by the engine's thread
// in order of positions, whatever chunks the prompt is cut into; then handed with the answer's head
// to its reader, and read-only from there on. Knows no shards; at most kPromptScoresMax numbers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "router/answer.h"

namespace weft::router {

class PromptScores {
 public:
  // Rows (positions) begin .. end - 1 of the prompt, each of which says something of the token
  // behind it.
  struct Rows {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t count() const { return end - begin; }
  };

  // Nothing is known yet. `top`: most likely tokens wanted at each place. `table` outlives this and
  // may be null, as in Answer.
  PromptScores(absl::Span<const TokenId> prompt, uint32_t top, const TokenTable* table)
      : ids_(prompt.begin(), prompt.end()), top_(top), table_(table) {}

  uint32_t top() const { return top_; }
  // Tokens of the prompt.
  uint32_t tokens() const { return static_cast<uint32_t>(ids_.size()); }
  // Rows below have been scored.
  uint32_t rows() const { return static_cast<uint32_t>(logprobs_.size()); }
  // Rows of a chunk of `count` ids from `start` on that are still to be scored; maybe none.
  Rows Wanted(uint32_t start, uint32_t count) const;
  // The tokens behind these rows. REQUIRES: rows that are wanted.
  absl::Span<const TokenId> Targets(const Rows& rows) const {
    return absl::MakeConstSpan(ids_).subspan(rows.begin + 1, rows.count());
  }

  // The next row, which is rows(): `best` are at most top() tokens.
  void Add(float logprob, uint32_t rank, absl::Span<const std::pair<TokenId, float>> best);

  // What it keeps, for the request's permit.
  size_t bytes() const;

  // -- For the reader: all rows are there
  // The token at `index`, with the most likely ones; the first has no log-probability. Its text is
  // that of its bytes alone, and is not filled in.
  AnswerToken Token(size_t index) const;
  // 1: no other token was more likely. REQUIRES: 0 < index < tokens().
  uint32_t Rank(size_t index) const { return ranks_[index - 1]; }

 private:
  const std::vector<TokenId> ids_;
  const uint32_t top_;
  const TokenTable* const table_;
  // By row.
  std::vector<float> logprobs_;
  std::vector<uint32_t> ranks_;
  // Where the best tokens of each row end.
  std::vector<uint32_t> best_end_;
  std::vector<std::pair<TokenId, float>> best_;
};

}  // namespace weft::router

// Where one sequence stands in its grammar: which tokens may come next, one token more, some tokens
// less. Made by GrammarEngine::NewMatcher, owned by one sequence and called by one thread at a
// time; the grammar and the engine outlive it or are kept by it. A sequence that is begun again
// (recovery, preemption) gets a new one that consumes its output ids from the first.
//
// With a mark (`begin_after`) the grammar begins behind it: up to there every token is allowed but
// those that end the answer. Of a token that completes a mark of text and goes on, the rest may be
// blanks alone, which are not the grammar's. The first token behind the mark may be blanks too. A
// mark with an opening token (`open`) counts only when the answer begins with that.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"

struct WeftMatcher;  // router/text/ffi/weft_text.h
struct WeftCancel;

namespace weft::router {

class CompiledGrammar;
class GrammarMark;
class GrammarVocab;

class GrammarMatcher {
 public:
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) = delete;

  // Bit i % 32 of words[i / 32] becomes 1 when token i may come next, and 0 otherwise, also beyond
  // the vocabulary. RESOURCE_EXHAUSTED when the grammar is too complex here: the sequence ends, all
  // calls that follow say the same; others are not touched.
  absl::Status ComputeMask(absl::Span<uint32_t> words);

  // True when `id` may come next, which is then consumed; false, and nothing changes, otherwise.
  // RESOURCE_EXHAUSTED as above.
  absl::StatusOr<bool> Consume(TokenId id);

  // Forgets the last `count` tokens; INVALID_ARGUMENT when there are fewer.
  absl::Status Rollback(size_t count);

  // Another one at the same place; they share what the grammar's lexer has found out.
  absl::StatusOr<std::unique_ptr<GrammarMatcher>> Fork() const;

  // The answer may end here; nothing but a token that ends it may come.
  absl::StatusOr<bool> MayStop();
  absl::StatusOr<bool> MustStop();

  // The text that comes next whatever is chosen, for drafts; never a shortcut, since which tokens
  // spell it is the model's choice. Empty before the mark.
  absl::StatusOr<std::string> ForcedText() const;

  // Tokens consumed, those before the mark too.
  size_t size() const;

  // Of the last mask, for measurements.
  struct Stats {
    uint64_t mask_fuel = 0;
    uint64_t mask_items = 0;
    size_t lexer_bytes = 0;
  };
  absl::StatusOr<Stats> ReadStats();

 private:
  friend class GrammarEngine;

  struct Parts {
    std::shared_ptr<const GrammarVocab> vocab;
    std::shared_ptr<const CompiledGrammar> grammar;
    // Null: the grammar begins at once.
    std::shared_ptr<const GrammarMark> mark;
    // With a mark: see GrammarEngine::Mark.
    TokenId open = kNoToken;
  };
  GrammarMatcher(Parts parts, WeftMatcher* raw);

  // Whether the grammar has begun.
  bool Inside() const { return before_done_; }
  // The grammar has begun, unless the next token opens what comes before it.
  bool MayOpen() const { return parts_.mark != nullptr && parts_.open != kNoToken && size() == 0; }
  // A token of blanks behind the mark is not the grammar's.
  bool MayTakeBlanks() const {
    return Inside() && !before_.empty() && !blanks_taken_ && inside_ == 0;
  }
  // As Consume, with the grammar's part alone.
  absl::StatusOr<bool> ConsumeInside(TokenId id);

  const Parts parts_;
  WeftMatcher* raw_;
  WeftCancel* cancel_;
  // Tokens before the grammar: up to the mark, and blanks behind it.
  std::vector<TokenId> before_;
  bool before_done_;
  bool blanks_taken_ = false;
  // Bytes or ids of the mark that the end of `before_` has.
  size_t mark_state_ = 0;
  size_t inside_ = 0;
};

}  // namespace weft::router

// What grammars know of a vocabulary beside its trie: the limit on calls, tokens of blanks, and
// marks behind which a grammar begins. Immutable; any thread. Private to this folder.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/text/grammar/cpu_limit.h"
#include "router/text/tokenizer.h"

namespace weft::router {

class GrammarVocab {
 public:
  GrammarVocab(const Tokenizer& tokenizer, absl::Span<const TokenId> eos,
               absl::Duration mask_cpu_max);

  uint32_t size() const { return tokenizer_.vocab_size(); }
  absl::string_view bytes(TokenId id) const { return tokenizer_.TokenBytes(id); }
  bool IsEos(TokenId id) const;
  bool IsBlank(TokenId id) const;
  absl::Span<const TokenId> eos() const { return eos_; }
  // Tokens of white space alone.
  absl::Span<const TokenId> blanks() const { return blanks_; }
  CpuLimit& limit() const { return *limit_; }

 private:
  const Tokenizer& tokenizer_;
  const std::vector<TokenId> eos_;
  std::vector<TokenId> blanks_;
  const std::unique_ptr<CpuLimit> limit_;
};

// The sequence of bytes or of tokens that ends what comes before a grammar, and how far a sequence
// is in it: a state of 0 to length().
class GrammarMark {
 public:
  GrammarMark(const GrammarVocab& vocab, std::string text, std::vector<TokenId> ids);

  // Length of the longest beginning of the mark that the tokens end with.
  size_t length() const { return ids_.empty() ? text_.size() : ids_.size(); }
  // The state behind `id`; length() when the mark is complete.
  size_t Next(size_t state, TokenId id, absl::string_view bytes) const;
  // Tokens that would complete the mark from `state` with more than blanks behind it.
  absl::Span<const TokenId> Refused(size_t state) const;

 private:
  // The state behind one more byte or token.
  template <typename Symbols>
  size_t Step(const Symbols& symbols, size_t state, typename Symbols::value_type next) const;
  bool CompletesWithMore(size_t state, absl::string_view bytes) const;

  const std::string text_;
  const std::vector<TokenId> ids_;
  // Of the symbols' beginnings: length of the longest border.
  std::vector<size_t> border_;
  // By state.
  std::vector<std::vector<TokenId>> refused_;
};

}  // namespace weft::router

#include "router/text/constraints/constraints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/errors.h"

namespace weft::router {
namespace {

class AllowedIds final : public TokenConstraint {
 public:
  explicit AllowedIds(std::vector<TokenId> ids) : ids_(std::move(ids)) {}

  absl::Status Consume(TokenId) override { return absl::OkStatus(); }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0);
    for (const TokenId id : ids_) {
      if (id / 32 < words.size()) words[id / 32] |= 1u << (id % 32);
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<TokenId> ids_;
};

class BannedSequences final : public TokenConstraint {
 public:
  explicit BannedSequences(std::vector<std::vector<TokenId>> sequences)
      : sequences_(std::move(sequences)) {
    for (const std::vector<TokenId>& sequence : sequences_) {
      longest_ = std::max(longest_, sequence.size());
    }
  }

  absl::Status Consume(TokenId id) override {
    last_.push_back(id);
    // The last id of a sequence is the one that is banned: what stands before it must be known.
    if (last_.size() >= longest_) last_.erase(last_.begin());
    return absl::OkStatus();
  }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), ~0u);
    for (const std::vector<TokenId>& sequence : sequences_) {
      const size_t before = sequence.size() - 1;
      if (before > last_.size() || !std::equal(sequence.begin(), sequence.end() - 1,
                                               last_.end() - static_cast<ptrdiff_t>(before))) {
        continue;
      }
      const TokenId id = sequence.back();
      if (id / 32 < words.size()) words[id / 32] &= ~(1u << (id % 32));
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<std::vector<TokenId>> sequences_;
  size_t longest_ = 1;
  // The end of the answer so far.
  std::vector<TokenId> last_;
};

class HeldIds final : public TokenConstraint {
 public:
  HeldIds(std::vector<TokenId> ids, uint32_t min_tokens)
      : ids_(std::move(ids)), left_(min_tokens) {}

  absl::Status Consume(TokenId) override {
    if (left_ > 0) --left_;
    return absl::OkStatus();
  }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), ~0u);
    for (const TokenId id : ids_) {
      if (left_ > 0 && id / 32 < words.size()) words[id / 32] &= ~(1u << (id % 32));
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<TokenId> ids_;
  // Tokens to come before any of them may.
  uint32_t left_;
};

class Several final : public TokenConstraint {
 public:
  explicit Several(std::vector<std::unique_ptr<TokenConstraint>> constraints)
      : constraints_(std::move(constraints)) {}

  absl::Status Consume(TokenId id) override {
    for (const auto& constraint : constraints_) WEFT_RETURN_IF_ERROR(constraint->Consume(id));
    return absl::OkStatus();
  }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), ~0u);
    one_.resize(words.size());
    for (const auto& constraint : constraints_) {
      WEFT_RETURN_IF_ERROR(constraint->Allow(absl::MakeSpan(one_)));
      for (size_t i = 0; i < words.size(); ++i) words[i] &= one_[i];
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<TokenConstraint>> constraints_;
  std::vector<uint32_t> one_;
};

}  // namespace

std::unique_ptr<TokenConstraint> AllowOnly(std::vector<TokenId> ids) {
  return std::make_unique<AllowedIds>(std::move(ids));
}

std::unique_ptr<TokenConstraint> BanSequences(std::vector<std::vector<TokenId>> sequences) {
  return std::make_unique<BannedSequences>(std::move(sequences));
}

std::unique_ptr<TokenConstraint> HoldBack(std::vector<TokenId> ids, uint32_t min_tokens) {
  return std::make_unique<HeldIds>(std::move(ids), min_tokens);
}

std::unique_ptr<TokenConstraint> AllOf(std::vector<std::unique_ptr<TokenConstraint>> constraints) {
  if (constraints.size() == 1) return std::move(constraints.front());
  return std::make_unique<Several>(std::move(constraints));
}

absl::StatusOr<std::vector<std::vector<TokenId>>> SpellWords(
    const Tokenizer& tokenizer, const std::vector<std::string>& words) {
  Tokenizer::EncodeOptions options;
  options.add_special_tokens = false;
  std::vector<std::vector<TokenId>> sequences;
  const auto add = [&](const std::string& text) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Tokenizer::Encoding encoding, tokenizer.Encode(text, options));
    if (!encoding.ids.empty()) sequences.push_back(std::move(encoding.ids));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string bare(absl::StripLeadingAsciiWhitespace(words[i]));
    if (bare.empty()) {
      return FieldError("bad_words", absl::StrCat("holds nothing but blanks at index ", i));
    }
    WEFT_RETURN_IF_ERROR(add(words[i]));
    WEFT_RETURN_IF_ERROR(add(absl::StrCat(" ", bare)));
  }
  std::sort(sequences.begin(), sequences.end());
  sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
  return sequences;
}

}  // namespace weft::router

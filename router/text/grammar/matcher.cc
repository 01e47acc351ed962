#include "router/text/grammar/matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/ffi_text.h"
#include "router/text/grammar/engine.h"
#include "router/text/grammar/mark.h"

namespace weft::router {
namespace {

absl::Status Failed(WeftTextStatus status, const FfiText& error) {
  if (status == WEFT_TEXT_OK) return absl::OkStatus();
  const std::string words = absl::StrCat("the grammar ", error.view());
  if (status == WEFT_TEXT_INVALID) return absl::InvalidArgumentError(words);
  if (status == WEFT_TEXT_LIMIT) return absl::ResourceExhaustedError(words);
  return absl::InternalError(absl::StrCat("the grammar library failed: ", error.view()));
}

void SetBit(absl::Span<uint32_t> words, TokenId id, bool value) {
  if (id / 32 >= words.size()) return;
  const uint32_t bit = uint32_t{1} << (id % 32);
  words[id / 32] = value ? words[id / 32] | bit : words[id / 32] & ~bit;
}

}  // namespace

GrammarMatcher::GrammarMatcher(Parts parts, WeftMatcher* raw)
    : parts_(std::move(parts)),
      raw_(raw),
      cancel_(weft_matcher_cancel_new(raw)),
      before_done_(parts_.mark == nullptr || parts_.open != kNoToken) {}

GrammarMatcher::~GrammarMatcher() {
  weft_cancel_free(cancel_);
  weft_matcher_free(raw_);
}

absl::Status GrammarMatcher::ComputeMask(absl::Span<uint32_t> words) {
  const GrammarVocab& vocab = *parts_.vocab;
  if (!Inside()) {
    std::fill(words.begin(), words.end(), 0u);
    const size_t whole = std::min<size_t>(vocab.size() / 32, words.size());
    std::fill_n(words.begin(), whole, ~uint32_t{0});
    for (TokenId id = static_cast<TokenId>(whole * 32); id < vocab.size(); ++id) {
      SetBit(words, id, true);
    }
    for (const TokenId id : vocab.eos()) SetBit(words, id, false);
    for (const TokenId id : parts_.mark->Refused(mark_state_)) SetBit(words, id, false);
    return absl::OkStatus();
  }
  FfiText error;
  {
    const CpuLimit::Call limited(vocab.limit(), cancel_);
    WEFT_RETURN_IF_ERROR(
        Failed(weft_matcher_mask(raw_, words.data(), words.size(), error.out()), error));
  }
  if (MayOpen()) SetBit(words, parts_.open, true);
  if (MayTakeBlanks()) {
    for (const TokenId id : vocab.blanks()) SetBit(words, id, true);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> GrammarMatcher::Consume(TokenId id) {
  const GrammarVocab& vocab = *parts_.vocab;
  if (id >= vocab.size()) return false;
  if (!Inside()) {
    if (vocab.IsEos(id)) return false;
    for (const TokenId refused : parts_.mark->Refused(mark_state_)) {
      if (refused == id) return false;
    }
    mark_state_ = parts_.mark->Next(mark_state_, id, vocab.bytes(id));
    before_.push_back(id);
    before_done_ = mark_state_ == parts_.mark->length();
    return true;
  }
  if (MayOpen() && id == parts_.open) {
    before_.push_back(id);
    before_done_ = false;
    return true;
  }
  WEFT_ASSIGN_OR_RETURN(const bool fits, ConsumeInside(id));
  if (fits) return true;
  if (!MayTakeBlanks() || !vocab.IsBlank(id)) return false;
  before_.push_back(id);
  blanks_taken_ = true;
  return true;
}

absl::StatusOr<bool> GrammarMatcher::ConsumeInside(TokenId id) {
  FfiText error;
  bool fits = false;
  const CpuLimit::Call limited(parts_.vocab->limit(), cancel_);
  WEFT_RETURN_IF_ERROR(Failed(weft_matcher_consume(raw_, id, &fits, error.out()), error));
  if (fits) ++inside_;
  return fits;
}

absl::Status GrammarMatcher::Rollback(size_t count) {
  if (count > size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rollback of ", count, " tokens; ", size(), " were consumed"));
  }
  const size_t inside = std::min(count, inside_);
  if (inside > 0) {
    FfiText error;
    const CpuLimit::Call limited(parts_.vocab->limit(), cancel_);
    WEFT_RETURN_IF_ERROR(Failed(weft_matcher_rollback(raw_, inside, error.out()), error));
    inside_ -= inside;
  }
  if (inside == count) return absl::OkStatus();
  // What came before is cheap to go through again.
  const std::vector<TokenId> kept(before_.begin(), before_.end() - (count - inside));
  before_.clear();
  before_done_ = parts_.open != kNoToken;
  blanks_taken_ = false;
  mark_state_ = 0;
  for (const TokenId id : kept) {
    if (before_done_ && !MayOpen()) {
      before_.push_back(id);
      blanks_taken_ = true;
      continue;
    }
    WEFT_RETURN_IF_ERROR(Consume(id).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GrammarMatcher>> GrammarMatcher::Fork() const {
  WeftMatcher* raw = nullptr;
  FfiText error;
  WEFT_RETURN_IF_ERROR(Failed(weft_matcher_fork(raw_, &raw, error.out()), error));
  auto fork = std::unique_ptr<GrammarMatcher>(new GrammarMatcher(parts_, raw));
  fork->before_ = before_;
  fork->before_done_ = before_done_;
  fork->blanks_taken_ = blanks_taken_;
  fork->mark_state_ = mark_state_;
  fork->inside_ = inside_;
  return fork;
}

absl::StatusOr<bool> GrammarMatcher::MayStop() {
  if (!Inside()) return false;
  WeftMatcherState state = {};
  FfiText error;
  const CpuLimit::Call limited(parts_.vocab->limit(), cancel_);
  WEFT_RETURN_IF_ERROR(Failed(weft_matcher_state(raw_, &state, error.out()), error));
  return state.may_stop;
}

absl::StatusOr<bool> GrammarMatcher::MustStop() {
  if (!Inside()) return false;
  WeftMatcherState state = {};
  FfiText error;
  const CpuLimit::Call limited(parts_.vocab->limit(), cancel_);
  WEFT_RETURN_IF_ERROR(Failed(weft_matcher_state(raw_, &state, error.out()), error));
  return state.must_stop;
}

absl::StatusOr<std::string> GrammarMatcher::ForcedText() const {
  if (!Inside()) return std::string();
  FfiText text;
  FfiText error;
  WEFT_RETURN_IF_ERROR(Failed(weft_matcher_forced(raw_, text.out(), error.out()), error));
  return std::string(text.view());
}

size_t GrammarMatcher::size() const { return before_.size() + inside_; }

absl::StatusOr<GrammarMatcher::Stats> GrammarMatcher::ReadStats() {
  WeftMatcherState state = {};
  FfiText error;
  WEFT_RETURN_IF_ERROR(Failed(weft_matcher_state(raw_, &state, error.out()), error));
  return Stats{state.mask_fuel, state.mask_items, state.lexer_bytes};
}

}  // namespace weft::router

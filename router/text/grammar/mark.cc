#include "router/text/grammar/mark.h"

#include "absl/algorithm/container.h"

namespace weft::router {
namespace {

bool AllBlank(absl::string_view bytes) {
  return absl::c_all_of(bytes,
                        [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
}

template <typename Symbols>
std::vector<size_t> Borders(const Symbols& symbols) {
  std::vector<size_t> borders(symbols.size(), 0);
  size_t border = 0;
  for (size_t i = 1; i < symbols.size(); ++i) {
    while (border > 0 && symbols[i] != symbols[border]) border = borders[border - 1];
    if (symbols[i] == symbols[border]) ++border;
    borders[i] = border;
  }
  return borders;
}

}  // namespace

GrammarVocab::GrammarVocab(const Tokenizer& tokenizer, absl::Span<const TokenId> eos,
                           absl::Duration mask_cpu_max)
    : tokenizer_(tokenizer),
      eos_(eos.begin(), eos.end()),
      limit_(std::make_unique<CpuLimit>(mask_cpu_max)) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    if (!bytes.empty() && !tokenizer.IsSpecial(id) && AllBlank(bytes)) blanks_.push_back(id);
  }
}

bool GrammarVocab::IsEos(TokenId id) const { return absl::c_linear_search(eos_, id); }

bool GrammarVocab::IsBlank(TokenId id) const { return absl::c_binary_search(blanks_, id); }

GrammarMark::GrammarMark(const GrammarVocab& vocab, std::string text, std::vector<TokenId> ids)
    : text_(std::move(text)), ids_(std::move(ids)) {
  if (!ids_.empty()) {
    border_ = Borders(ids_);
    return;
  }
  border_ = Borders(text_);
  refused_.resize(text_.size());
  for (TokenId id = 0; id < vocab.size(); ++id) {
    const absl::string_view bytes = vocab.bytes(id);
    // Whatever the state: it cannot complete the mark without the mark's last byte.
    if (bytes.size() < 2 || bytes.find(text_.back()) == absl::string_view::npos) continue;
    for (size_t state = 0; state < text_.size(); ++state) {
      if (CompletesWithMore(state, bytes)) refused_[state].push_back(id);
    }
  }
}

template <typename Symbols>
size_t GrammarMark::Step(const Symbols& symbols, size_t state,
                         typename Symbols::value_type next) const {
  while (state > 0 && symbols[state] != next) state = border_[state - 1];
  return symbols[state] == next ? state + 1 : 0;
}

size_t GrammarMark::Next(size_t state, TokenId id, absl::string_view bytes) const {
  if (!ids_.empty()) return Step(ids_, state, id);
  for (const char byte : bytes) {
    state = Step(text_, state, byte);
    if (state == text_.size()) return state;
  }
  return state;
}

bool GrammarMark::CompletesWithMore(size_t state, absl::string_view bytes) const {
  for (size_t i = 0; i < bytes.size(); ++i) {
    state = Step(text_, state, bytes[i]);
    if (state == text_.size()) return !AllBlank(bytes.substr(i + 1));
  }
  return false;
}

absl::Span<const TokenId> GrammarMark::Refused(size_t state) const {
  if (state >= refused_.size()) return {};
  return refused_[state];
}

}  // namespace weft::router

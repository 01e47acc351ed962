#include "router/text/grammar/engine.h"

#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/ffi_text.h"
#include "router/text/grammar/mark.h"

namespace weft::router {
namespace {

WeftGrammarLimits Limits(const GrammarOptions& options) {
  WeftGrammarLimits limits = {};
  limits.source_bytes = kGrammarBytesMax;
  limits.symbols = kGrammarSymbolsMax;
  limits.compile_fuel = kGrammarCompileFuelMax;
  limits.compile_cpu_us = kGrammarCompileUsMax;
  limits.mask_fuel = kGrammarMaskFuelMax;
  limits.mask_items = kGrammarMaskItemsMax;
  limits.row_items = kGrammarRowItemsMax;
  limits.lexer_bytes = kGrammarLexerBytesMax;
  limits.lexers = options.lexers;
  return limits;
}

size_t HashOf(const GrammarSpec& spec) {
  return absl::HashOf(static_cast<int>(spec.kind), spec.texts, spec.closed_objects);
}

// The tokenizer's table as the library reads it.
struct Table {
  std::string bytes;
  std::vector<uint32_t> starts;
  std::vector<uint8_t> specials;

  explicit Table(const Tokenizer& tokenizer) {
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      const absl::string_view token = tokenizer.TokenBytes(id);
      starts.push_back(static_cast<uint32_t>(bytes.size()));
      bytes.append(token.data(), token.size());
      specials.push_back(tokenizer.IsSpecial(id) ? 1 : 0);
    }
    starts.push_back(static_cast<uint32_t>(bytes.size()));
  }

  WeftVocab view() const {
    WeftVocab vocab = {};
    vocab.bytes = bytes.data();
    vocab.starts = starts.data();
    vocab.specials = specials.data();
    vocab.size = static_cast<uint32_t>(specials.size());
    return vocab;
  }
};

}  // namespace

CompiledGrammar::CompiledGrammar(GrammarSpec spec, WeftGrammar* raw)
    : spec_(std::move(spec)), raw_(raw), bytes_(weft_grammar_bytes(raw) + spec_.bytes()) {}

CompiledGrammar::~CompiledGrammar() { weft_grammar_free(raw_); }

absl::StatusOr<std::unique_ptr<GrammarEngine>> GrammarEngine::Create(
    const Tokenizer& tokenizer, absl::Span<const TokenId> eos, const GrammarOptions& options) {
  std::unique_ptr<GrammarEngine> engine = CreateLater(tokenizer, eos, options);
  WEFT_RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

std::unique_ptr<GrammarEngine> GrammarEngine::CreateLater(const Tokenizer& tokenizer,
                                                          absl::Span<const TokenId> eos,
                                                          const GrammarOptions& options) {
  return std::unique_ptr<GrammarEngine>(new GrammarEngine(tokenizer, eos, options));
}

GrammarEngine::GrammarEngine(const Tokenizer& tokenizer, absl::Span<const TokenId> eos,
                             const GrammarOptions& options)
    : tokenizer_(tokenizer), eos_(eos.begin(), eos.end()), options_(options) {}

GrammarEngine::~GrammarEngine() { weft_grammar_env_free(env_); }

absl::Status GrammarEngine::Prepare() {
  absl::call_once(prepared_, [this] { prepare_status_ = MakeEnv(); });
  return prepare_status_;
}

absl::Status GrammarEngine::MakeEnv() {
  const Table table(tokenizer_);
  const WeftVocab vocab = table.view();
  const WeftGrammarLimits limits = Limits(options_);
  FfiText error;
  const WeftTextStatus status =
      weft_grammar_env_new(&vocab, eos_.data(), eos_.size(), &limits, &env_, error.out());
  if (status == WEFT_TEXT_PANIC) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammars cannot use this vocabulary: ", error.view()));
  }
  if (status != WEFT_TEXT_OK) return ToStatus(status, error.view());
  vocab_ = std::make_shared<const GrammarVocab>(tokenizer_, eos_, options_.mask_cpu_max);
  return absl::OkStatus();
}

absl::StatusOr<GrammarEngine::Shared> GrammarEngine::CompileNow(const GrammarSpec& spec,
                                                                absl::string_view field) {
  if (const absl::Status ready = Prepare(); !ready.ok()) return FieldError(field, ready.message());
  std::vector<WeftSlice> texts;
  texts.reserve(spec.texts.size());
  for (const std::string& text : spec.texts) texts.push_back(ToSlice(text));
  const WeftGrammarSource source = {texts.data(), texts.size(), static_cast<uint8_t>(spec.kind),
                                    spec.closed_objects};
  WeftGrammar* raw = nullptr;
  FfiText error;
  const WeftTextStatus status = weft_grammar_compile(env_, &source, &raw, error.out());
  if (status == WEFT_TEXT_PANIC) {
    return FieldError(field, absl::StrCat("cannot be compiled: ", error.view().substr(0, 200)));
  }
  if (status != WEFT_TEXT_OK) return FieldError(field, error.view());
  return Shared(new CompiledGrammar(spec, raw));
}

absl::StatusOr<GrammarEngine::Shared> GrammarEngine::Compile(const GrammarSpec& spec,
                                                             absl::string_view field) {
  const size_t hash = HashOf(spec);
  {
    absl::MutexLock lock(&mutex_);
    // The one that compiles the same is done soon; after that the cache may know it. Past the limit
    // this caller compiles by itself.
    const auto idle = [this, hash] {
      mutex_.AssertReaderHeld();
      return !compiling_.contains(hash);
    };
    mutex_.AwaitWithTimeout(absl::Condition(&idle), absl::Microseconds(2 * kGrammarCompileUsMax));
    if (Shared known = Find(spec, hash); known != nullptr) {
      ++hits_;
      return known;
    }
    ++misses_;
    ++compiling_[hash];
  }
  absl::StatusOr<Shared> made = CompileNow(spec, field);
  absl::MutexLock lock(&mutex_);
  if (--compiling_[hash] == 0) compiling_.erase(hash);
  if (made.ok()) Keep(*made, hash);
  return made;
}

bool GrammarEngine::Knows(const GrammarSpec& spec) const {
  const size_t hash = HashOf(spec);
  absl::MutexLock lock(&mutex_);
  const auto found = by_hash_.find(hash);
  return found != by_hash_.end() && found->second->grammar->spec() == spec;
}

GrammarEngine::Shared GrammarEngine::Find(const GrammarSpec& spec, size_t hash) {
  const auto found = by_hash_.find(hash);
  // Equal hashes of different grammars are possible: then the later one is compiled each time.
  if (found == by_hash_.end() || !(found->second->grammar->spec() == spec)) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().grammar;
}

void GrammarEngine::Keep(Shared grammar, size_t hash) {
  if (by_hash_.contains(hash) || grammar->bytes() > options_.cache_bytes) return;
  cache_bytes_ += grammar->bytes();
  entries_.push_front({hash, std::move(grammar)});
  by_hash_[hash] = entries_.begin();
  while (cache_bytes_ > options_.cache_bytes) {
    cache_bytes_ -= entries_.back().grammar->bytes();
    by_hash_.erase(entries_.back().hash);
    entries_.pop_back();
  }
}

absl::StatusOr<std::unique_ptr<GrammarMatcher>> GrammarEngine::NewMatcher(Shared grammar) {
  return NewMatcher(std::move(grammar), Mark());
}

absl::StatusOr<std::unique_ptr<GrammarMatcher>> GrammarEngine::NewMatcher(Shared grammar,
                                                                          const Mark& mark) {
  GrammarMatcher::Parts parts;
  parts.vocab = vocab_;
  parts.open = mark.open;
  if (mark.text.size() + mark.ids.size() > kGrammarMarkMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grammar's mark has more than ", kGrammarMarkMax, " bytes or tokens"));
  }
  if (!mark.ids.empty()) {
    parts.mark = std::make_shared<const GrammarMark>(*vocab_, std::string(), mark.ids);
  } else if (!mark.text.empty()) {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<const GrammarMark>& known = marks_[mark.text];
    if (known == nullptr) {
      known = std::make_shared<const GrammarMark>(*vocab_, mark.text, std::vector<TokenId>());
    }
    parts.mark = known;
    // A model has one or two; whoever makes more finds them anew each time.
    if (marks_.size() > kGrammarMarksMax) marks_.clear();
  }
  WeftMatcher* raw = nullptr;
  FfiText error;
  const WeftTextStatus status = weft_matcher_new(grammar->raw_, &raw, error.out());
  if (status != WEFT_TEXT_OK) return ToStatus(status, error.view());
  parts.grammar = std::move(grammar);
  return std::unique_ptr<GrammarMatcher>(new GrammarMatcher(std::move(parts), raw));
}

GrammarEngine::CacheStats GrammarEngine::ReadCache() const {
  absl::MutexLock lock(&mutex_);
  return {entries_.size(), cache_bytes_, hits_, misses_};
}

}  // namespace weft::router

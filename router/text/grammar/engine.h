// Grammars of one model: made once from its tokenizer, asked by many threads. It compiles what a
// request asks for, keeps what was compiled, and makes matchers. Compilation takes milliseconds,
// and up to two seconds for the worst that is taken: never call it on a thread that serves others.

#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/limits.h"
#include "router/text/grammar/cpu_limit.h"
#include "router/text/grammar/matcher.h"
#include "router/text/grammar/spec.h"
#include "router/text/tokenizer.h"

struct WeftGrammar;  // router/text/ffi/weft_text.h
struct WeftGrammarEnv;

namespace weft::router {

// Immutable; shared by the cache and the matchers.
class CompiledGrammar {
 public:
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  const GrammarSpec& spec() const { return spec_; }
  // Memory that it holds, about.
  size_t bytes() const { return bytes_; }

 private:
  friend class GrammarEngine;
  CompiledGrammar(GrammarSpec spec, WeftGrammar* raw);

  const GrammarSpec spec_;
  WeftGrammar* const raw_;
  const size_t bytes_;
};

struct GrammarOptions {
  size_t cache_bytes = kGrammarCacheBytesDefault;
  // CPU time that a mask may take.
  absl::Duration mask_cpu_max = absl::Microseconds(kGrammarMaskUsMax);
  // Matchers of one grammar share so many lexers: the states that one has found out the others
  // know, and only one of them works at a time. > 0.
  uint32_t lexers = 2;
};

class GrammarEngine {
 public:
  // `eos`: the tokens that end an answer. The tokenizer must outlive the engine. INVALID_ARGUMENT
  // without any, and for a vocabulary that no trie can hold.
  static absl::StatusOr<std::unique_ptr<GrammarEngine>> Create(const Tokenizer& tokenizer,
                                                               absl::Span<const TokenId> eos,
                                                               const GrammarOptions& options = {});
  // The same without what takes its time, which Prepare does, or the first Compile.
  static std::unique_ptr<GrammarEngine> CreateLater(const Tokenizer& tokenizer,
                                                    absl::Span<const TokenId> eos,
                                                    const GrammarOptions& options = {});
  // Makes what all grammars of the model need, unless it is there: a trie of 128,000 tokens takes
  // 0.2 s. Callers that come meanwhile wait for it. Errors as Create's, the same at each call.
  absl::Status Prepare();
  ~GrammarEngine();

  // The grammar of `spec`, compiled unless it is known; of callers with the same one compiles, the
  // others wait. INVALID_ARGUMENT with `field` and what is wrong, also for what is too complex.
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(const GrammarSpec& spec,
                                                                 absl::string_view field);

  // `spec` has been compiled and is still kept: Compile costs nothing.
  bool Knows(const GrammarSpec& spec) const;

  // Where the grammar begins; both empty: at once.
  struct Mark {
    // What ends the reasoning: as text, in whatever tokens it comes ("</think>"), or as tokens.
    std::string text;
    std::vector<TokenId> ids;
    // What opens the reasoning, where the prompt does not: an answer that does not begin with this
    // token is the grammar's from its beginning. kNoToken: the answer begins inside of it.
    TokenId open = kNoToken;
  };
  absl::StatusOr<std::unique_ptr<GrammarMatcher>> NewMatcher(
      std::shared_ptr<const CompiledGrammar> grammar, const Mark& begin_after);
  absl::StatusOr<std::unique_ptr<GrammarMatcher>> NewMatcher(
      std::shared_ptr<const CompiledGrammar> grammar);

  struct CacheStats {
    size_t entries = 0;
    size_t bytes = 0;
    uint64_t hits = 0;
    uint64_t misses = 0;
  };
  CacheStats ReadCache() const;

 private:
  using Shared = std::shared_ptr<const CompiledGrammar>;
  GrammarEngine(const Tokenizer& tokenizer, absl::Span<const TokenId> eos,
                const GrammarOptions& options);
  absl::Status MakeEnv();
  absl::StatusOr<Shared> CompileNow(const GrammarSpec& spec, absl::string_view field);
  // Null when there is none.
  Shared Find(const GrammarSpec& spec, size_t hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(Shared grammar, size_t hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Tokenizer& tokenizer_;
  const std::vector<TokenId> eos_;
  const GrammarOptions options_;
  // What Prepare makes; whoever has called it may read them.
  absl::once_flag prepared_;
  absl::Status prepare_status_;
  std::shared_ptr<const GrammarVocab> vocab_;
  WeftGrammarEnv* env_ = nullptr;

  mutable absl::Mutex mutex_;
  struct Entry {
    size_t hash;
    Shared grammar;
  };
  // The last used in front.
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<size_t, std::list<Entry>::iterator> by_hash_ ABSL_GUARDED_BY(mutex_);
  size_t cache_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
  // Hashes of what is being compiled.
  absl::flat_hash_map<size_t, int> compiling_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<const GrammarMark>> marks_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router

// What the grammar tests share: engines of the demo model and of small ones, the 200 schemas,
// tokens of texts, random walks through masks.

#pragma once

#include <boost/json.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/text/grammar/engine.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// Of the demo model, made once; without one the test is skipped.
const Tokenizer& DemoTokens();
GrammarEngine& DemoGrammars();
TokenId DemoEos();

// The bytes of single tokens, all 256 and what is given besides; the last is "<|end|>", which ends
// an answer, the one before it "<|tool|>", special too.
std::unique_ptr<Tokenizer> PlainTokens(const std::vector<std::string>& more = {});

struct SchemaCase {
  std::string name;
  std::string schema;
  std::vector<std::string> instances;
};
// schemas.json, written by make_schemas.py.
const std::vector<SchemaCase>& Schemas();

GrammarSpec SchemaSpec(std::string schema);
GrammarSpec TextSpec(GrammarSpec::Kind kind, std::string text);

std::vector<uint32_t> MaskOf(GrammarMatcher& matcher, const Tokenizer& tokenizer);
bool Allows(const std::vector<uint32_t>& mask, TokenId id);

// Whether all tokens of `ids` may come one after another, by the masks and by Consume alike, and
// the text may end behind them.
bool Accepts(GrammarMatcher& matcher, const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
             bool with_masks = true);
// The tokens of `text` as the model's tokenizer cuts it; another cut of it, by random tokens.
std::vector<TokenId> Canonical(const Tokenizer& tokenizer, absl::string_view text);
std::vector<TokenId> RandomCut(const Tokenizer& tokenizer, absl::string_view text,
                               std::mt19937_64& random);

// A text of tokens drawn from masks, with a bias to what comes to an end. Empty when it did not end
// within `tokens_max`.
struct Walk {
  bool ended = false;
  std::string text;
  std::string error;
};
Walk RandomWalk(GrammarMatcher& matcher, const Tokenizer& tokenizer, std::mt19937_64& random,
                int tokens_max);

}  // namespace weft::router

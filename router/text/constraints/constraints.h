// The constraints of a request that need no grammar: ids that alone are allowed, words that must
// not appear, and several constraints at once. Made by text in, one object an answer; run by mask
// workers, one at a time (engine/constraint.h).

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "router/engine/constraint.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// No token but these, `ids`, which are at least one.
std::unique_ptr<TokenConstraint> AllowOnly(std::vector<TokenId> ids);

// None of the token sequences, each of at least one id, is completed by the answer.
std::unique_ptr<TokenConstraint> BanSequences(std::vector<std::vector<TokenId>> sequences);

// None of `ids` before the answer has `min_tokens` tokens.
std::unique_ptr<TokenConstraint> HoldBack(std::vector<TokenId> ids, uint32_t min_tokens);

// What each of `constraints` allows.
std::unique_ptr<TokenConstraint> AllOf(std::vector<std::unique_ptr<TokenConstraint>> constraints);

// The token sequences that spell `words`, at the beginning of a text and behind a blank, as vLLM
// bans `bad_words`. An error names the field "bad_words".
absl::StatusOr<std::vector<std::vector<TokenId>>> SpellWords(const Tokenizer& tokenizer,
                                                             const std::vector<std::string>& words);

}  // namespace weft::router

// The steps of a tokenizer.json around its vocabulary, in the JSON of the tokenizers crate: what is
// done to a text before and after. One function a step; each writes what transformers'
// convert_slow_tokenizer writes for the kind. Pure; used by `weft convert`.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "boost/json/fwd.hpp"
#include "deploy/convert/bpe_vocab.h"

namespace weft::convert {

enum class TokenizerKind : uint8_t { kGpt2, kQwen2, kLlama, kGemma };

struct TokenizerSteps {
  TokenizerKind kind = TokenizerKind::kGpt2;
  // A blank is put in front of a text.
  bool blank_first = false;
  // Llama's older form: blanks are put in by the normalizer, and behind every special token.
  bool legacy = true;
  // Of SentencePiece: the token for what no other covers.
  std::string unknown;
  // Tokens around every text, with their ids.
  std::optional<std::pair<std::string, uint32_t>> first;
  std::optional<std::pair<std::string, uint32_t>> last;
};

boost::json::value Normalizer(const TokenizerSteps& steps);
boost::json::value PreTokenizer(const TokenizerSteps& steps);
boost::json::value PostProcessor(const TokenizerSteps& steps);
boost::json::value Decoder(const TokenizerSteps& steps);
boost::json::value Model(const TokenizerSteps& steps, const BpeVocab& vocab);

}  // namespace weft::convert

// What the router knows of its own copy of the model, for the comparison with that of the shards
// before the first epoch. A plain value, filled in by whoever loaded tokenizer and model text.

#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/tokenizer_fingerprint.h"

namespace weft::router {

struct RouterModel {
  // Ids that the tokenizer knows; 0 = nothing is known, and nothing compared.
  uint32_t vocab_size = 0;
  // Ids that end an answer, ascending.
  std::vector<TokenId> eos_ids;
  // Longest sequence that the model's files allow, as the shards' files tell them; 0 = not known.
  uint32_t context_tokens = 0;
  TokenizerFingerprint tokenizer;
};

}  // namespace weft::router

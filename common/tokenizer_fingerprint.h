// Which tokenizer a model brings along, as a number that two processes can compare without sending
// it: a router must encode with the tokenizer that its shards' model was trained with, or answers
// are garbage that looks like success. Called once at start-up by router and shard on their own
// model path. It tells files apart; it does not parse or judge them.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// Where a fingerprint comes from; two can be compared only when both come from the same kind of
// file. Numbered as weft.shard.v1.TokenizerSource.
enum class TokenizerSource : uint8_t { kNone = 0, kTokenizerJson = 1, kGguf = 2 };

struct TokenizerFingerprint {
  TokenizerSource source = TokenizerSource::kNone;
  // FNV-1a, 64 bits: of the bytes of tokenizer.json, or of the GGUF keys tokenizer.ggml.* that
  // encoding depends on (model, pre-tokenizer, tokens, types, scores, merges, special ids).
  uint64_t hash = 0;
};

// `model_path` is a directory in Hugging Face layout or a .gguf file. kNone when it is neither or
// has no tokenizer; an error when a tokenizer is there and cannot be read, naming the file.
absl::StatusOr<TokenizerFingerprint> FingerprintTokenizer(const std::string& model_path);

}  // namespace weft

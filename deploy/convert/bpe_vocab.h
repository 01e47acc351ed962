// A byte-pair vocabulary out of either kind of file: vocab.json with merges.txt, or the pieces of a
// SentencePiece model, whose merges follow from their scores. Used by `weft convert`, one thread.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/convert/sentence_piece.h"

namespace weft::convert {

struct BpeVocab {
  absl::flat_hash_map<std::string, uint32_t> ids;
  // Best first.
  std::vector<std::pair<std::string, std::string>> merges;
};

// INVALID_ARGUMENT naming file and line for what is no vocabulary: ids that are none or appear
// twice, lines that are not two tokens with a blank between them, merges of what is no token.
absl::StatusOr<BpeVocab> ReadVocabAndMerges(const std::string& directory);

// The merges are those of transformers' generate_merges: every way to make a piece of two others,
// those of higher scores first, and among equal ones those with longer first and second parts.
BpeVocab VocabOf(const std::vector<SentencePiece>& pieces);

}  // namespace weft::convert

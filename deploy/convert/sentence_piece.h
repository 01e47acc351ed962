// tokenizer.model: a SentencePiece model, of which a byte-pair vocabulary is read. The file is a
// protocol buffer (sentencepiece_model.proto, message ModelProto); only the fields that change what
// a text becomes are looked at. Used by `weft convert`, one thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::convert {

struct SentencePiece {
  enum Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

  std::string text;
  float score = 0;
  Type type = kNormal;
};

struct SentencePieceModel {
  // Index = id; no text is there twice.
  std::vector<SentencePiece> pieces;
  std::string unknown_piece = "<unk>";
  // A blank is put in front of a text.
  bool add_dummy_prefix = true;
};

// INVALID_ARGUMENT for bytes that are no such file and for pieces that are none; UNIMPLEMENTED, by
// the name that the file has for it, for models other than byte-pair ones and for ways to change a
// text that a tokenizer.json made from the pieces would not follow.
absl::StatusOr<SentencePieceModel> ParseSentencePiece(absl::Span<const uint8_t> bytes);

}  // namespace weft::convert

#include "deploy/convert/sentence_piece.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/utf8.h"
#include "deploy/convert/little_endian.h"

namespace weft::convert {
namespace {

// Every way to cut a piece in two is tried; published ones have up to some 200 bytes.
constexpr size_t kPieceBytesMax = 512;

absl::Status Damaged() {
  return absl::InvalidArgumentError(
      "is no SentencePiece model, or a damaged one: copy or download it again (a file of lines "
      "with base64 is tiktoken's, which has no merges: use the model's tokenizer.json)");
}

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(what, "; save a tokenizer.json with transformers' AutoTokenizer instead"));
}

// One field of a protocol buffer. `number` holds varints, `bytes` all else.
struct Field {
  uint32_t id = 0;
  uint32_t wire = 0;
  uint64_t number = 0;
  absl::Span<const uint8_t> bytes;
};

std::optional<uint64_t> Varint(ByteCursor* cursor) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = cursor->Number<uint8_t>();
    if (!byte.has_value()) return std::nullopt;
    value |= uint64_t{*byte & 0x7fu} << shift;
    if ((*byte & 0x80u) == 0) return value;
  }
  return std::nullopt;
}

std::optional<Field> NextField(ByteCursor* cursor) {
  const auto tag = Varint(cursor);
  if (!tag.has_value() || *tag >> 3 == 0 || *tag > UINT32_MAX) return std::nullopt;
  Field field;
  field.id = static_cast<uint32_t>(*tag >> 3);
  field.wire = *tag & 7u;
  uint64_t size = 0;
  if (field.wire == 0) {
    const auto number = Varint(cursor);
    if (!number.has_value()) return std::nullopt;
    field.number = *number;
    return field;
  }
  if (field.wire == 1 || field.wire == 5) {
    size = field.wire == 1 ? 8 : 4;
  } else if (field.wire == 2) {
    const auto number = Varint(cursor);
    if (!number.has_value()) return std::nullopt;
    size = *number;
  } else {
    return std::nullopt;
  }
  const auto bytes = cursor->Bytes(size);
  if (!bytes.has_value()) return std::nullopt;
  field.bytes = *bytes;
  return field;
}

// Hands every field of a message to `take`.
absl::Status EachField(absl::Span<const uint8_t> message,
                       absl::FunctionRef<absl::Status(const Field&)> take) {
  ByteCursor cursor(message);
  while (cursor.left() > 0) {
    const auto field = NextField(&cursor);
    if (!field.has_value()) return Damaged();
    WEFT_RETURN_IF_ERROR(take(*field));
  }
  return absl::OkStatus();
}

absl::StatusOr<SentencePiece> ReadPiece(absl::Span<const uint8_t> message, size_t id) {
  SentencePiece piece;
  WEFT_RETURN_IF_ERROR(EachField(message, [&piece](const Field& field) -> absl::Status {
    if (field.id == 1 && field.wire == 2) piece.text = std::string(AsText(field.bytes));
    if (field.id == 2 && field.wire == 5) piece.score = LittleEndian<float>(field.bytes.data());
    if (field.id == 3 && field.wire == 0) {
      if (field.number < SentencePiece::kNormal || field.number > SentencePiece::kByte) {
        return Damaged();
      }
      piece.type = static_cast<SentencePiece::Type>(field.number);
    }
    return absl::OkStatus();
  }));
  const auto bad = [id](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("piece ", id, " ", what));
  };
  if (piece.text.empty() || piece.text.size() > kPieceBytesMax) {
    return bad(absl::StrCat("has ", piece.text.size(), " bytes; expected 1 to ", kPieceBytesMax));
  }
  for (absl::string_view rest = piece.text; !rest.empty();) {
    const size_t bytes = Utf8CharacterBytes(rest);
    if (bytes == 0) return bad("is not UTF-8");
    rest.remove_prefix(bytes);
  }
  if (std::isnan(piece.score)) return bad("has a score that is no number");
  return piece;
}

// TrainerSpec.
absl::Status ReadTrainer(absl::Span<const uint8_t> message, SentencePieceModel* model) {
  constexpr uint64_t kBpe = 2;
  // 1, unigram, unless the file says otherwise.
  uint64_t kind = 1;
  bool suffix = false;
  WEFT_RETURN_IF_ERROR(EachField(message, [&](const Field& field) {
    if (field.id == 3 && field.wire == 0) kind = field.number;
    if (field.id == 24 && field.wire == 0) suffix = field.number != 0;
    if (field.id == 45 && field.wire == 2) model->unknown_piece = std::string(AsText(field.bytes));
    return absl::OkStatus();
  }));
  if (kind != kBpe) {
    return Unsupported(absl::StrCat("model_type is ", kind == 1 ? "UNIGRAM" : absl::StrCat(kind),
                                    "; only BPE is converted"));
  }
  if (suffix) return Unsupported("treat_whitespace_as_suffix: true is not supported");
  return absl::OkStatus();
}

// NormalizerSpec.
absl::Status ReadNormalizer(absl::Span<const uint8_t> message, SentencePieceModel* model) {
  bool removes = true;
  bool escapes = true;
  bool maps = false;
  WEFT_RETURN_IF_ERROR(EachField(message, [&](const Field& field) {
    if (field.id == 2 && field.wire == 2) maps = !field.bytes.empty();
    if (field.id == 3 && field.wire == 0) model->add_dummy_prefix = field.number != 0;
    if (field.id == 4 && field.wire == 0) removes = field.number != 0;
    if (field.id == 5 && field.wire == 0) escapes = field.number != 0;
    return absl::OkStatus();
  }));
  if (maps) return Unsupported("precompiled_charsmap is not supported");
  if (removes) return Unsupported("remove_extra_whitespaces: true is not supported");
  if (!escapes) return Unsupported("escape_whitespaces: false is not supported");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SentencePieceModel> ParseSentencePiece(absl::Span<const uint8_t> bytes) {
  SentencePieceModel model;
  bool has_trainer = false;
  bool has_normalizer = false;
  WEFT_RETURN_IF_ERROR(EachField(bytes, [&](const Field& field) -> absl::Status {
    if (field.wire != 2) return absl::OkStatus();
    if (field.id == 1) {
      if (model.pieces.size() == kVocabMax) {
        return absl::InvalidArgumentError(absl::StrCat("has more than ", kVocabMax, " pieces"));
      }
      WEFT_ASSIGN_OR_RETURN(SentencePiece piece, ReadPiece(field.bytes, model.pieces.size()));
      model.pieces.push_back(std::move(piece));
    }
    if (field.id == 2) {
      has_trainer = true;
      WEFT_RETURN_IF_ERROR(Annotate(ReadTrainer(field.bytes, &model), "trainer_spec"));
    }
    if (field.id == 3) {
      has_normalizer = true;
      WEFT_RETURN_IF_ERROR(Annotate(ReadNormalizer(field.bytes, &model), "normalizer_spec"));
    }
    return absl::OkStatus();
  }));
  if (model.pieces.empty() || !has_trainer || !has_normalizer) return Damaged();
  absl::flat_hash_set<absl::string_view> texts;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (texts.insert(model.pieces[id].text).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "piece ", id, ", ", absl::CHexEscape(model.pieces[id].text), ", is there twice"));
  }
  return model;
}

}  // namespace weft::convert

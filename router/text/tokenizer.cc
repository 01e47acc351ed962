#include "router/text/tokenizer.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/detokenizer.h"
#include "router/text/ffi_text.h"

namespace weft::router {
namespace {

constexpr char kTooManyTokensUrl[] = "weft/prompt-tokens";

absl::Status TooMany(size_t tokens, size_t text_bytes, const Tokenizer::EncodeOptions& options) {
  absl::Status status =
      FieldError("prompt", absl::StrCat("has ", text_bytes, " bytes, which are at least ", tokens,
                                        " tokens; at most ", options.tokens_max, " are taken"));
  status.SetPayload(kTooManyTokensUrl, absl::Cord(absl::StrCat(tokens)));
  return status;
}

}  // namespace

void Tokenizer::Deleter::operator()(WeftTokenizer* tokenizer) const {
  weft_tokenizer_free(tokenizer);
}

Tokenizer::Tokenizer(Handle handle) : handle_(std::move(handle)) {
  const WeftVocab vocab = weft_tokenizer_vocab(handle_.get());
  bytes_ = vocab.bytes;
  starts_ = absl::MakeConstSpan(vocab.starts, vocab.size + 1);
  special_ = absl::MakeConstSpan(vocab.specials, vocab.size);
  decoder_kind_ = vocab.decoder == WEFT_DECODER_SENTENCE_PIECE ? DecoderKind::kSentencePiece
                                                               : DecoderKind::kByteLevel;
  strip_leading_blank_ = vocab.strip_leading_blank;
}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer::Encoding> Tokenizer::Encode(absl::string_view text,
                                                      const EncodeOptions& options) const {
  if (text.size() > kTemplateOutputBytesMax) {
    return FieldError("prompt", absl::StrCat("has ", text.size(), " bytes; at most ",
                                             kTemplateOutputBytesMax, " can be tokenized"));
  }
  if (options.tokens_max < text.size()) {
    const size_t tokens_min = TokensMin(text);
    if (tokens_min > options.tokens_max) return TooMany(tokens_min, text.size(), options);
  }
  static_assert(sizeof(std::atomic<bool>) == sizeof(bool), "the library reads it as one byte");
  const WeftEncodeOptions raw_options = {options.breaks.data(),
                                         options.breaks.size(),
                                         options.tokens_max,
                                         options.piece_bytes,
                                         reinterpret_cast<const bool*>(options.cancelled),
                                         options.add_special_tokens,
                                         options.control_tokens,
                                         options.offsets};
  WeftEncoding raw = {};
  FfiText error;
  const WeftTextStatus status =
      weft_tokenizer_encode(handle_.get(), ToSlice(text), &raw_options, &raw, error.out());
  if (status == WEFT_TEXT_TOO_MANY) return TooMany(raw.count, text.size(), options);
  if (status == WEFT_TEXT_CANCELLED) return absl::CancelledError("nobody waits for the prompt");
  if (status == WEFT_TEXT_INVALID) return FieldError("prompt", error.view());
  if (status != WEFT_TEXT_OK) return ToStatus(status, error.view());
  absl::Cleanup free_encoding = [&raw] { weft_encoding_free(raw); };

  Encoding encoding;
  encoding.ids.reserve(raw.count + 2);
  encoding.offsets.reserve(options.offsets ? raw.count + 2 : 0);
  const auto add = [&encoding, &options](std::optional<TokenId> id) {
    if (!id.has_value()) return;
    encoding.ids.push_back(*id);
    if (options.offsets) encoding.offsets.emplace_back(0, 0);
  };
  if (options.add_special_tokens) add(bos_);
  encoding.ids.insert(encoding.ids.end(), raw.ids, raw.ids + raw.count);
  for (size_t i = 0; i + 1 < raw.offset_count; i += 2) {
    encoding.offsets.emplace_back(raw.offsets[i], raw.offsets[i + 1]);
  }
  if (options.add_special_tokens) add(eos_);
  if (encoding.ids.size() > options.tokens_max) {
    return TooMany(encoding.ids.size(), text.size(), options);
  }
  return encoding;
}

absl::StatusOr<Tokenizer::Encoding> Tokenizer::Encode(absl::string_view text,
                                                      bool add_special_tokens) const {
  EncodeOptions options;
  options.add_special_tokens = add_special_tokens;
  options.offsets = true;
  return Encode(text, options);
}

std::optional<size_t> Tokenizer::TooManyTokens(const absl::Status& status) {
  const absl::optional<absl::Cord> count = status.GetPayload(kTooManyTokensUrl);
  size_t tokens = 0;
  if (!count.has_value() || !absl::SimpleAtoi(std::string(*count), &tokens)) return std::nullopt;
  return tokens;
}

size_t Tokenizer::EncodeBytesMax(absl::string_view text) const {
  return weft_tokenizer_work_bytes_max(handle_.get(), ToSlice(text), text.size(), kPieceBytes);
}

size_t Tokenizer::EncodeBytesMax(size_t text_bytes) const {
  return weft_tokenizer_work_bytes_max(handle_.get(), {nullptr, 0}, text_bytes, kPieceBytes);
}

absl::StatusOr<std::vector<uint32_t>> Tokenizer::Breaks(absl::string_view text, bool ends) const {
  WeftEncoding raw = {};
  FfiText error;
  const WeftTextStatus status =
      weft_tokenizer_breaks(handle_.get(), ToSlice(text), ends, &raw, error.out());
  if (status == WEFT_TEXT_INVALID) return FieldError("messages", error.view());
  if (status != WEFT_TEXT_OK) return ToStatus(status, error.view());
  std::vector<uint32_t> places(raw.ids, raw.ids + raw.count);
  weft_encoding_free(raw);
  return places;
}

absl::string_view Tokenizer::FormEdges() const {
  const WeftSlice edges = weft_tokenizer_form_edges(handle_.get());
  return {edges.data, edges.size};
}

size_t Tokenizer::TokensMin(absl::string_view text) const {
  return weft_tokenizer_tokens_min(handle_.get(), ToSlice(text));
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const TokenId> ids, bool skip_special,
                                              size_t bytes_max) const {
  Detokenizer detokenizer(this, skip_special);
  std::string text;
  const auto append = [&text, bytes_max](absl::string_view piece) {
    if (piece.size() > bytes_max - text.size()) return false;
    text.append(piece.data(), piece.size());
    return true;
  };
  const auto too_long = [bytes_max] {
    return FieldError("ids", absl::StrCat("give more than ", bytes_max, " bytes of text"));
  };
  for (const TokenId id : ids) {
    if (id >= vocab_size()) {
      return FieldError(
          "ids", absl::StrCat("has token ", id, "; the vocabulary has ids below ", vocab_size()));
    }
    if (!append(detokenizer.Push(id))) return too_long();
  }
  if (!append(detokenizer.Flush())) return too_long();
  return text;
}

size_t Tokenizer::TokensBytes(absl::Span<const TokenId> ids) const {
  size_t bytes = 0;
  for (const TokenId id : ids) bytes += TokenBytes(id).size();
  return bytes;
}

TokenId Tokenizer::FindToken(absl::string_view token) const {
  TokenId id = kNoToken;
  return weft_tokenizer_find(handle_.get(), ToSlice(token), &id) ? id : kNoToken;
}

}  // namespace weft::router

#include "router/text/tokenizer_ffi.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/ffi_text.h"

namespace weft::router {

void FfiTokenizer::Deleter::operator()(WeftTokenizer* tokenizer) const {
  weft_tokenizer_free(tokenizer);
}

FfiTokenizer::FfiTokenizer(Handle handle)
    : Tokenizer(TableOf(handle.get())), handle_(std::move(handle)) {}

Tokenizer::Table FfiTokenizer::TableOf(const WeftTokenizer* tokenizer) {
  const WeftVocab vocab = weft_tokenizer_vocab(tokenizer);
  Table table;
  table.bytes = vocab.bytes;
  table.starts = absl::MakeConstSpan(vocab.starts, vocab.size + 1);
  table.special = absl::MakeConstSpan(vocab.specials, vocab.size);
  if (vocab.decoder == WEFT_DECODER_SENTENCE_PIECE) {
    table.decoder_kind = DecoderKind::kSentencePiece;
  }
  table.strip_leading_blank = vocab.strip_leading_blank;
  return table;
}

absl::StatusOr<Tokenizer::Encoding> FfiTokenizer::Encode(absl::string_view text,
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

size_t FfiTokenizer::EncodeBytesMax(absl::string_view text) const {
  return weft_tokenizer_work_bytes_max(handle_.get(), ToSlice(text), text.size(), kPieceBytes);
}

size_t FfiTokenizer::EncodeBytesMax(size_t text_bytes) const {
  return weft_tokenizer_work_bytes_max(handle_.get(), {nullptr, 0}, text_bytes, kPieceBytes);
}

absl::StatusOr<std::vector<uint32_t>> FfiTokenizer::Breaks(absl::string_view text,
                                                           bool ends) const {
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

absl::string_view FfiTokenizer::FormEdges() const {
  const WeftSlice edges = weft_tokenizer_form_edges(handle_.get());
  return {edges.data, edges.size};
}

size_t FfiTokenizer::TokensMin(absl::string_view text) const {
  return weft_tokenizer_tokens_min(handle_.get(), ToSlice(text));
}

TokenId FfiTokenizer::FindToken(absl::string_view token) const {
  TokenId id = kNoToken;
  return weft_tokenizer_find(handle_.get(), ToSlice(token), &id) ? id : kNoToken;
}

}  // namespace weft::router

#include "router/text/tokenizer.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/detokenizer.h"
#include "router/text/ffi_text.h"

namespace weft::router {

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
                                                      bool add_special_tokens) const {
  if (text.size() > kTemplateOutputBytesMax) {
    return FieldError("prompt", absl::StrCat("has ", text.size(), " bytes; at most ",
                                             kTemplateOutputBytesMax, " can be tokenized"));
  }
  WeftEncoding raw = {};
  FfiText error;
  const WeftTextStatus status =
      weft_tokenizer_encode(handle_.get(), ToSlice(text), add_special_tokens, &raw, error.out());
  if (status == WEFT_TEXT_INVALID) return FieldError("prompt", error.view());
  if (status != WEFT_TEXT_OK) return ToStatus(status, error.view());
  absl::Cleanup free_encoding = [&raw] { weft_encoding_free(raw); };

  Encoding encoding;
  encoding.ids.reserve(raw.count + 2);
  encoding.offsets.reserve(raw.count + 2);
  const auto add = [&encoding](std::optional<TokenId> id) {
    if (!id.has_value()) return;
    encoding.ids.push_back(*id);
    encoding.offsets.emplace_back(0, 0);
  };
  if (add_special_tokens) add(bos_);
  encoding.ids.insert(encoding.ids.end(), raw.ids, raw.ids + raw.count);
  for (size_t i = 0; i < raw.count; ++i) {
    encoding.offsets.emplace_back(raw.offsets[2 * i], raw.offsets[2 * i + 1]);
  }
  if (add_special_tokens) add(eos_);
  return encoding;
}

size_t Tokenizer::TokensMin(absl::string_view text) const {
  return weft_tokenizer_tokens_min(handle_.get(), ToSlice(text));
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const TokenId> ids,
                                              bool skip_special) const {
  Detokenizer detokenizer(this, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    if (id >= vocab_size()) {
      return FieldError(
          "ids", absl::StrCat("has token ", id, "; the vocabulary has ids below ", vocab_size()));
    }
    text += detokenizer.Push(id);
  }
  text += detokenizer.Flush();
  return text;
}

TokenId Tokenizer::FindToken(absl::string_view token) const {
  TokenId id = kNoToken;
  return weft_tokenizer_find(handle_.get(), ToSlice(token), &id) ? id : kNoToken;
}

}  // namespace weft::router

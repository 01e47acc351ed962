#include "router/text/tokenizer.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/context_length.h"
#include "router/errors.h"
#include "router/text/detokenizer.h"

namespace weft::router {
namespace {

constexpr char kTooManyTokensUrl[] = "weft/prompt-tokens";

}  // namespace

absl::Status Tokenizer::TooMany(size_t tokens, size_t text_bytes, const EncodeOptions& options) {
  absl::Status status = ContextLengthError("prompt",
                                           absl::StrCat("the prompt is too long: its ", text_bytes,
                                                        " bytes are at least ", tokens, " tokens"),
                                           options.tokens_max);
  status.SetPayload(kTooManyTokensUrl, absl::Cord(absl::StrCat(tokens)));
  return status;
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

}  // namespace weft::router

#include "router/text/prompt_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/context_length.h"
#include "router/errors.h"

namespace weft::router {
namespace {

absl::StatusOr<RenderedChat> Render(const ChatTemplate* chat_template, const ChatPrompt& chat) {
  if (chat_template == nullptr) {
    return FieldError("messages", "the model has no chat template; send a text prompt");
  }
  return chat_template->Render(chat);
}

absl::Status CheckIds(const std::vector<TokenId>& ids, uint32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab_size) {
      return FieldError("prompt", absl::StrCat("token id ", ids[i], " at position ", i,
                                               " is not below the vocabulary size ", vocab_size));
    }
  }
  return absl::OkStatus();
}

// The lists ascend.
absl::Status CheckParameterIds(const GenerateInput& input, uint32_t vocab_size) {
  const auto check = [vocab_size](absl::string_view field, TokenId largest) {
    if (largest < vocab_size) return absl::OkStatus();
    return FieldError(field, absl::StrCat("token id ", largest,
                                          " is not below the vocabulary size ", vocab_size));
  };
  const auto& biases = input.sampling.logit_bias;
  if (!biases.empty()) WEFT_RETURN_IF_ERROR(check("logit_bias", biases.back().first));
  const std::vector<TokenId>& stops = input.stop_token_ids;
  if (!stops.empty()) WEFT_RETURN_IF_ERROR(check("stop_token_ids", stops.back()));
  const std::vector<TokenId>& allowed = input.allowed_token_ids;
  if (!allowed.empty()) WEFT_RETURN_IF_ERROR(check("allowed_token_ids", allowed.back()));
  return absl::OkStatus();
}

// Before the shards are there nobody knows how much fits.
uint32_t TokensMax(uint32_t request_tokens_max) {
  return request_tokens_max == 0 ? kContextTokensMax : request_tokens_max;
}

// What encoding a long text needs is counted before it is taken, with the breaks it has already.
absl::Status Reserve(const Tokenizer& tokenizer, absl::string_view text,
                     const std::vector<uint32_t>& breaks, Admission::Permit* permit) {
  if (permit == nullptr || text.size() <= Tokenizer::kPieceBytes) return absl::OkStatus();
  return permit->AddBytes(tokenizer.EncodeBytesMax(text) + breaks.capacity() * sizeof(uint32_t));
}

// Seconds of a thread are not spent on text that cannot fit.
absl::Status CheckFits(const Tokenizer& tokenizer, absl::string_view text,
                       uint32_t request_tokens_max) {
  request_tokens_max = TokensMax(request_tokens_max);
  const size_t tokens = tokenizer.TokensMin(text);
  if (tokens < request_tokens_max) return absl::OkStatus();
  return ContextLengthError("prompt",
                            absl::StrCat("the prompt is too long, also before truncation: its ",
                                         text.size(), " bytes are at least ", tokens, " tokens"),
                            request_tokens_max);
}

struct EncodedText {
  // As given, or as the template rendered it.
  std::string text;
  Tokenizer::Encoding encoding;
};

// Renders a conversation, refuses what cannot fit and encodes the rest.
absl::StatusOr<EncodedText> EncodeText(const Tokenizer& tokenizer,
                                       const ChatTemplate* chat_template,
                                       uint32_t request_tokens_max, const ReadLimits& limits,
                                       std::variant<std::string, ChatPrompt> prompt,
                                       Tokenizer::EncodeOptions options) {
  EncodedText out;
  std::vector<uint32_t> breaks;
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) {
    WEFT_ASSIGN_OR_RETURN(RenderedChat rendered, Render(chat_template, *chat));
    out.text = std::move(rendered.text);
    breaks = std::move(rendered.breaks);
    options.breaks = breaks;
    options.add_special_tokens = false;  // templates write their own
  } else {
    out.text = std::get<std::string>(std::move(prompt));
  }
  options.cancelled = limits.cancelled;
  WEFT_RETURN_IF_ERROR(CheckFits(tokenizer, out.text, request_tokens_max));
  WEFT_RETURN_IF_ERROR(Reserve(tokenizer, out.text, breaks, limits.permit));
  WEFT_ASSIGN_OR_RETURN(out.encoding, tokenizer.Encode(out.text, options));
  return out;
}

// The text that `prompt`, which is not ids, holds.
std::variant<std::string, ChatPrompt> TakeText(
    std::variant<std::string, std::vector<TokenId>, ChatPrompt>&& prompt) {
  if (auto* chat = std::get_if<ChatPrompt>(&prompt)) return std::move(*chat);
  return std::get<std::string>(std::move(prompt));
}

}  // namespace

absl::StatusOr<PromptText> ReadPrompt(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                      uint32_t vocab_size, uint32_t request_tokens_max,
                                      const ReadLimits& limits, GenerateInput* input) {
  PromptText out;
  if (auto* ids = std::get_if<std::vector<TokenId>>(&input->prompt)) {
    out.ids = std::move(*ids);
  } else {
    Tokenizer::EncodeOptions options;
    options.add_special_tokens = input->add_special_tokens;
    // Which tokens a truncated prompt keeps only encoding all of it tells.
    if (!input->truncate_prompt_tokens.has_value()) {
      options.tokens_max = TokensMax(request_tokens_max);
    }
    WEFT_ASSIGN_OR_RETURN(EncodedText encoded,
                          EncodeText(tokenizer, chat_template, request_tokens_max, limits,
                                     TakeText(std::move(input->prompt)), options));
    out.text = std::move(encoded.text);
    out.ids = std::move(encoded.encoding.ids);
  }
  // Of text too: a tokenizer may know ids beyond the model's embedding.
  WEFT_RETURN_IF_ERROR(CheckIds(out.ids, vocab_size));
  if (out.ids.empty()) return FieldError("prompt", "has no tokens");
  if (out.text.empty() && input->echo_prompt) {
    // No longer than a prompt that comes as text may be.
    absl::StatusOr<std::string> text =
        tokenizer.Decode(out.ids, /*skip_special=*/false, kPromptBytesMax);
    if (!text.ok()) return RenameField(text.status(), "prompt");
    out.text = *std::move(text);
  }
  const uint32_t keep = input->truncate_prompt_tokens.value_or(0);
  if (keep > 0 && out.ids.size() > keep) out.ids.erase(out.ids.begin(), out.ids.end() - keep);
  WEFT_RETURN_IF_ERROR(CheckParameterIds(*input, vocab_size));
  input->prompt = std::string();
  return out;
}

absl::StatusOr<TokenizeResult> TokenizePrompt(const Tokenizer& tokenizer,
                                              const ChatTemplate* chat_template,
                                              uint32_t request_tokens_max, const ReadLimits& limits,
                                              std::variant<std::string, ChatPrompt> prompt,
                                              bool add_special_tokens) {
  const bool is_chat = std::holds_alternative<ChatPrompt>(prompt);
  Tokenizer::EncodeOptions options;
  options.add_special_tokens = add_special_tokens;
  options.offsets = !is_chat;
  options.tokens_max = TokensMax(request_tokens_max);
  WEFT_ASSIGN_OR_RETURN(
      EncodedText encoded,
      EncodeText(tokenizer, chat_template, request_tokens_max, limits, std::move(prompt), options));
  TokenizeResult result;
  result.text = std::move(encoded.text);
  result.ids = std::move(encoded.encoding.ids);
  if (!is_chat) result.offsets = std::move(encoded.encoding.offsets);
  result.tokens.reserve(result.ids.size());
  for (TokenId id : result.ids) result.tokens.emplace_back(tokenizer.TokenBytes(id));
  return result;
}

}  // namespace weft::router

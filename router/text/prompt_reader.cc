#include "router/text/prompt_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/errors.h"

namespace weft::router {
namespace {

absl::StatusOr<std::string> Render(const ChatTemplate* chat_template, const ChatPrompt& chat) {
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

// Seconds of a text worker are not spent on text that cannot fit.
absl::Status CheckFits(const Tokenizer& tokenizer, absl::string_view text,
                       uint32_t request_tokens_max) {
  const size_t tokens = tokenizer.TokensMin(text);
  if (tokens < request_tokens_max) return absl::OkStatus();
  return FieldError("prompt", absl::StrCat("has ", text.size(), " bytes, which are at least ",
                                           tokens, " tokens; prompt and output together may have ",
                                           request_tokens_max, ", before truncation too"));
}

}  // namespace

absl::StatusOr<PromptText> ReadPrompt(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                      uint32_t vocab_size, uint32_t request_tokens_max,
                                      GenerateInput* input) {
  PromptText out;
  bool add_special_tokens = input->add_special_tokens;
  if (auto* ids = std::get_if<std::vector<TokenId>>(&input->prompt)) {
    WEFT_RETURN_IF_ERROR(CheckIds(*ids, vocab_size));
    out.ids = std::move(*ids);
  } else {
    if (auto* chat = std::get_if<ChatPrompt>(&input->prompt)) {
      WEFT_ASSIGN_OR_RETURN(out.text, Render(chat_template, *chat));
      add_special_tokens = false;  // templates write their own
    } else {
      out.text = std::get<std::string>(std::move(input->prompt));
    }
    WEFT_RETURN_IF_ERROR(CheckFits(tokenizer, out.text, request_tokens_max));
    WEFT_ASSIGN_OR_RETURN(Tokenizer::Encoding encoding,
                          tokenizer.Encode(out.text, add_special_tokens));
    out.ids = std::move(encoding.ids);
    // A tokenizer may know ids beyond the model's embedding.
    WEFT_RETURN_IF_ERROR(CheckIds(out.ids, vocab_size));
  }
  if (out.ids.empty()) return FieldError("prompt", "has no tokens");
  if (out.text.empty() && input->echo_prompt) {
    WEFT_ASSIGN_OR_RETURN(out.text, tokenizer.Decode(out.ids, /*skip_special=*/false));
  }
  const uint32_t keep = input->truncate_prompt_tokens.value_or(0);
  if (keep > 0 && out.ids.size() > keep) out.ids.erase(out.ids.begin(), out.ids.end() - keep);
  for (const auto& [id, bias] : input->sampling.logit_bias) {
    if (id >= vocab_size) {
      return FieldError(
          "logit_bias",
          absl::StrCat("token id ", id, " is not below the vocabulary size ", vocab_size));
    }
  }
  input->prompt = std::string();
  return out;
}

absl::StatusOr<TokenizeResult> TokenizePrompt(const Tokenizer& tokenizer,
                                              const ChatTemplate* chat_template,
                                              std::variant<std::string, ChatPrompt> prompt,
                                              bool add_special_tokens) {
  TokenizeResult result;
  const bool is_chat = std::holds_alternative<ChatPrompt>(prompt);
  if (is_chat) {
    WEFT_ASSIGN_OR_RETURN(result.text, Render(chat_template, std::get<ChatPrompt>(prompt)));
  } else {
    result.text = std::get<std::string>(std::move(prompt));
  }
  WEFT_ASSIGN_OR_RETURN(Tokenizer::Encoding encoding,
                        tokenizer.Encode(result.text, add_special_tokens && !is_chat));
  result.ids = std::move(encoding.ids);
  if (!is_chat) result.offsets = std::move(encoding.offsets);
  result.tokens.reserve(result.ids.size());
  for (TokenId id : result.ids) result.tokens.emplace_back(tokenizer.TokenBytes(id));
  return result;
}

}  // namespace weft::router

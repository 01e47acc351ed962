// Turns what a client sent into prompt ids and checks what only the model decides: the first half
// of what text in does. Stateless functions on shared, read-only text objects; any thread.

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "router/admission.h"
#include "router/request.h"
#include "router/text/chat_template.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// What a reading is held to beside the tokens.
struct ReadLimits {
  // Long texts add to it what encoding them needs. Null = nobody counts.
  Admission::Permit* permit = nullptr;
  // Encoding ends with CANCELLED soon after this becomes true. Null = never.
  const std::atomic<bool>* cancelled = nullptr;
};

struct PromptText {
  std::vector<TokenId> ids;
  // Text as the client gave it or as the template rendered it; decoded from ids when only those
  // were given and the text is wanted.
  std::string text;
};

// Template, tokenisation, truncation, ids below `vocab_size`, logit_bias ids likewise. Text whose
// bytes show that its tokens and one more are above `request_tokens_max` is refused before it is
// encoded, also when it would be truncated: cutting keeps the last tokens, and which they are only
// encoding all of it tells. Takes the prompt out of `input`. `chat_template` may be null. Errors
// name the field.
absl::StatusOr<PromptText> ReadPrompt(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                      uint32_t vocab_size, uint32_t request_tokens_max,
                                      const ReadLimits& limits, GenerateInput* input);

struct TokenizeResult {
  std::vector<TokenId> ids;
  // Bytes of each token.
  std::vector<std::string> tokens;
  // Byte range of each token in the text; empty for chat prompts.
  std::vector<std::pair<uint32_t, uint32_t>> offsets;
  // The rendered prompt of a conversation.
  std::string text;
};

// The answer to a tokenize call. Text that cannot fit is refused as in ReadPrompt: nobody needs the
// ids of a text that no request may hold.
absl::StatusOr<TokenizeResult> TokenizePrompt(const Tokenizer& tokenizer,
                                              const ChatTemplate* chat_template,
                                              uint32_t request_tokens_max, const ReadLimits& limits,
                                              std::variant<std::string, ChatPrompt> prompt,
                                              bool add_special_tokens);

}  // namespace weft::router

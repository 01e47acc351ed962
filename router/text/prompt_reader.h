// Turns what a client sent into prompt ids and checks what only the model decides: the first half
// of a text worker's work. Stateless functions on shared, read-only text objects; any thread.

#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "router/intake.h"
#include "router/request.h"
#include "router/text/chat_template.h"
#include "router/text/tokenizer.h"

namespace weft::router {

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
                                      GenerateInput* input);

// The answer to a tokenize call.
absl::StatusOr<TokenizeResult> TokenizePrompt(const Tokenizer& tokenizer,
                                              const ChatTemplate* chat_template,
                                              std::variant<std::string, ChatPrompt> prompt,
                                              bool add_special_tokens);

}  // namespace weft::router

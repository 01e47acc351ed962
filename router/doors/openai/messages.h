// Reads the conversation of a chat request: messages, tools, documents and what else the model's
// chat template is given. For the routes of OpenAI, and for TGI's that take the same body. Keeps no
// state; on the thread that reads the request.

#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "router/chat_prompt.h"
#include "router/doors/chat_json.h"
#include "router/doors/http/fields.h"

namespace weft::router {

// `*choice` is which of the tools the answer calls. Fields that nobody knows, of messages and what
// is in them, are added to *unknown with their path. Errors are those of `fields`, with the path of
// the field.
void ReadChatPrompt(FieldReader& fields, ChatPrompt* prompt, ToolChoice* choice,
                    std::vector<std::string>* unknown);

// Fields that are known and not served, for the description of the API: of a conversation, and of
// each of its messages.
absl::Span<const RefusedField> RefusedConversationFields();
absl::Span<const RefusedField> RefusedMessageFields();

}  // namespace weft::router

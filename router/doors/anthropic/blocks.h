// Reads Anthropic's conversation, which is made of blocks (text, calls of tools and their results,
// thinking), into the one that chat templates know. Keeps no state; on the thread that reads the
// request. Images and documents are refused.

#pragma once

#include <string>
#include <vector>

#include "router/chat_prompt.h"
#include "router/doors/chat_json.h"
#include "router/doors/http/fields.h"

namespace weft::router {

// `system`, `messages`, `tools` and `tool_choice`. A last message of the assistant is one that the
// answer goes on with. Fields that nobody knows are added to *unknown with their path.
void ReadMessagesPrompt(FieldReader& fields, ChatPrompt* prompt, ToolChoice* choice,
                        std::vector<std::string>* unknown);

}  // namespace weft::router

// Reads the input of OpenAI's Responses (a text, or items: messages, calls of functions and their
// results, reasoning) into the conversation that chat templates know. Keeps no state; on the thread
// that reads the request. Images, files and items of tools that OpenAI runs are refused.

#pragma once

#include <string>
#include <vector>

#include "router/chat_prompt.h"
#include "router/doors/http/fields.h"

namespace weft::router {

// `instructions` and `input`. Items of one answer (reasoning, a message, calls) become one message
// of the assistant. Fields that nobody knows are added to *unknown with their path.
void ReadResponsesInput(FieldReader& fields, ChatPrompt* prompt, std::vector<std::string>* unknown);

}  // namespace weft::router

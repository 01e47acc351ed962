// Which tools an answer calls, as OpenAI's chats and Responses say it: the same words in two
// shapes.
// Keeps no state; on the thread that reads the request.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/doors/chat_json.h"
#include "router/doors/http/fields.h"

namespace weft::router {

// Where the members of {"type": "function", ...} and {"type": "allowed_tools", ...} stand: in an
// object of that name (chats), or beside the type (Responses).
enum class ToolShape : uint8_t { kNested, kFlat };

// `tool_choice` and `parallel_tool_calls`. Fields that nobody knows are added to *unknown with
// their path.
ToolChoice ReadToolChoice(FieldReader& fields, ToolShape shape, std::vector<std::string>* unknown);

}  // namespace weft::router

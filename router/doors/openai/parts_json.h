// The message of a chat's answer in OpenAI's JSON: content, calls of tools, and reasoning as others
// write it (reasoning_content, which OpenAI's own API does not have). Pure.

#pragma once

#include <vector>

#include "router/doors/choice_parts.h"
#include "router/doors/http/json.h"

namespace weft::router {

// The whole message, of what `choice` kept.
void WriteMessage(const ChoiceParts& choice, bool reasoning, JsonWriter* json);

// The members of a chunk's delta for `parts`, which `choice` gave; none for no parts. A call's
// first chunk has its id and name.
void WriteDelta(const std::vector<AnswerPart>& parts, const ChoiceParts& choice, bool reasoning,
                JsonWriter* json);

}  // namespace weft::router

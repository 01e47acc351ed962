// The bodies that routes take, field by field, for the description of the API. A test holds each
// field against the reader: what its schema refuses the server refuses by its name, and a name that
// a reader knows is here. Pure; called once, at start.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/doors/api/field.h"

namespace weft::router::api {

// A body by the name that routes know it by.
struct ApiBody {
  absl::string_view name;
  ApiFields fields;
};

// One function for each door, in a file of its own; common_bodies.cc has what doors share.
std::vector<ApiBody> OpenAiBodies();
std::vector<ApiBody> TgiBodies();
std::vector<ApiBody> AnthropicBodies();
std::vector<ApiBody> ResponsesBodies();
std::vector<ApiBody> OllamaBodies();
std::vector<ApiBody> AllBodies();

// http/parameters.h: ReadCommonParameters, ReadStop, `resume`, a limit on tokens.
ApiFields CommonFields();
ApiField StopField(absl::string_view name);
ApiField ResumeField();
ApiField TokenCountField(absl::string_view name);
// A text, or token ids.
std::string TextOrIdsSchema();

// openai/request.h: ReadSamplingFields; http/grammar.h: ReadVllmGrammar.
ApiFields SamplingFields();

// openai/messages.h: ReadChatPrompt.
ApiFields ConversationFields();

}  // namespace weft::router::api

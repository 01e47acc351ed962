// Reads a weft.v1.ChatPrompt into the conversation that a chat template renders. No gRPC in here,
// only messages. Pure; any thread.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "router/chat_prompt.h"
#include "router/doors/chat_json.h"
#include "router/doors/entrance.h"
#include "router/request.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

// Every field is checked; errors name it as "chat.messages[0].role". Texts are moved. `*choice` is
// which of the tools the answer calls; tools that it may not call are not shown to the model.
absl::StatusOr<ChatPrompt> ReadChat(weft::v1::ChatPrompt* chat, ToolChoice* choice);

// What is known of the parts of the answer to input->prompt, into input->parts, behind all that
// they follow from. `model` says in which formats they come. Errors name chat.tools,
// chat.tool_choice and fields of `response`.
absl::Status ReadParts(const ModelFacts& model, const weft::v1::ResponseOptions& response,
                       ToolChoice choice, GenerateInput* input);

// Appends the numbers of fields that this build does not know, behind `path`.
void ListUnknown(const google::protobuf::Message& message, absl::string_view path,
                 std::vector<std::string>* out);
// The same for a conversation and all that is in it.
void ListUnknownChat(const weft::v1::ChatPrompt& chat, std::vector<std::string>* out);

}  // namespace weft::router

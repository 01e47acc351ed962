// Reads a weft.v1.ChatPrompt into the conversation that a chat template renders. No gRPC in here,
// only messages. Pure; any thread.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "router/chat_prompt.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

// Every field is checked; errors name it as "chat.messages[0].role". Texts are moved.
absl::StatusOr<ChatPrompt> ReadChat(weft::v1::ChatPrompt* chat);

// Appends the numbers of fields that this build does not know, behind `path`.
void ListUnknown(const google::protobuf::Message& message, absl::string_view path,
                 std::vector<std::string>* out);
// The same for a conversation and all that is in it.
void ListUnknownChat(const weft::v1::ChatPrompt& chat, std::vector<std::string>* out);

}  // namespace weft::router

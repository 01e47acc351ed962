#include "router/doors/grpc/chat.h"

#include <boost/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "google/protobuf/unknown_field_set.h"
#include "router/doors/chat_json.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr size_t kRoleBytesMax = 64;

using Texts = google::protobuf::RepeatedPtrField<std::string>;

absl::Status CheckCount(size_t count, size_t count_max, absl::string_view path) {
  if (count <= count_max) return absl::OkStatus();
  return FieldError(path, absl::StrCat("must have at most ", count_max, " entries, not ", count));
}

absl::StatusOr<ToolCall> ReadCall(weft::v1::ToolCall* from, const std::string& path) {
  ToolCall call;
  if (from->id().size() > kToolCallIdBytesMax) {
    return FieldError(path + ".id",
                      absl::StrCat("must have at most ", kToolCallIdBytesMax, " bytes"));
  }
  WEFT_RETURN_IF_ERROR(CheckToolName(from->name(), path + ".name"));
  const boost::json::string text(from->arguments());
  WEFT_ASSIGN_OR_RETURN(call.arguments,
                        ReadArguments(boost::json::value(text), path + ".arguments"));
  call.id = std::move(*from->mutable_id());
  call.name = std::move(*from->mutable_name());
  return call;
}

absl::StatusOr<ChatMessage> ReadMessage(weft::v1::ChatMessage* from, const std::string& path) {
  if (from->role().empty() || from->role().size() > kRoleBytesMax) {
    return FieldError(path + "role", absl::StrCat("must have 1 to ", kRoleBytesMax, " bytes"));
  }
  if (!from->content().empty() && !from->content_parts().empty()) {
    return FieldError(path + "content_parts", "stand in the place of content: give one of them");
  }
  const auto parts = static_cast<size_t>(from->content_parts_size());
  WEFT_RETURN_IF_ERROR(CheckCount(parts, kContentPartsMax, path + "content_parts"));
  const auto calls = static_cast<size_t>(from->tool_calls_size());
  WEFT_RETURN_IF_ERROR(CheckCount(calls, kToolCallsMax, path + "tool_calls"));
  ChatMessage message;
  for (size_t i = 0; i < calls; ++i) {
    WEFT_ASSIGN_OR_RETURN(ToolCall call, ReadCall(from->mutable_tool_calls(static_cast<int>(i)),
                                                  absl::StrCat(path, "tool_calls[", i, "]")));
    message.tool_calls.push_back(std::move(call));
  }
  message.no_content = calls > 0 && parts == 0 && from->content().empty();
  message.role = std::move(*from->mutable_role());
  message.content = std::move(*from->mutable_content());
  for (std::string& part : *from->mutable_content_parts()) {
    message.content_parts.push_back(std::move(part));
  }
  message.tool_call_id = std::move(*from->mutable_tool_call_id());
  message.name = std::move(*from->mutable_name());
  message.reasoning_content = std::move(*from->mutable_reasoning_content());
  WEFT_RETURN_IF_ERROR(CheckMessage(message, path));
  return message;
}

// Texts of JSON as one list.
absl::StatusOr<boost::json::value> ReadList(const Texts& texts, size_t count_max,
                                            const std::string& path) {
  WEFT_RETURN_IF_ERROR(CheckCount(static_cast<size_t>(texts.size()), count_max, path));
  boost::json::array list;
  for (int i = 0; i < texts.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(boost::json::value value,
                          ParseChatJson(texts[i], absl::StrCat(path, "[", i, "]")));
    list.push_back(std::move(value));
  }
  return boost::json::value(std::move(list));
}

absl::Status ReadVariables(const weft::v1::ChatPrompt& chat, ChatPrompt* prompt) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::value tools,
                        ReadList(chat.tools(), kToolsMax, "chat.tools"));
  WEFT_ASSIGN_OR_RETURN(ToolList list, ReadTools(tools, "chat.tools"));
  prompt->tools = std::move(list.json);
  WEFT_ASSIGN_OR_RETURN(const boost::json::value documents,
                        ReadList(chat.documents(), kDocumentsMax, "chat.documents"));
  WEFT_ASSIGN_OR_RETURN(prompt->documents, ReadDocuments(documents, "chat.documents"));
  prompt->reasoning_effort = chat.reasoning_effort();
  if (!chat.reasoning_effort().empty()) {
    WEFT_RETURN_IF_ERROR(CheckReasoningEffort(chat.reasoning_effort(), "chat.reasoning_effort"));
  }
  if (chat.chat_template_kwargs().empty()) return absl::OkStatus();
  constexpr char kPath[] = "chat.chat_template_kwargs";
  WEFT_ASSIGN_OR_RETURN(const boost::json::value kwargs,
                        ParseChatJson(chat.chat_template_kwargs(), kPath));
  WEFT_ASSIGN_OR_RETURN(prompt->template_kwargs, ReadTemplateKwargs(kwargs, kPath));
  if (!chat.reasoning_effort().empty() && kwargs.get_object().contains("reasoning_effort")) {
    return FieldError("chat.reasoning_effort", "is in chat_template_kwargs too; give one of them");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatPrompt> ReadChat(weft::v1::ChatPrompt* chat) {
  if (chat->messages().empty() || static_cast<size_t>(chat->messages_size()) > kChatMessagesMax) {
    return FieldError("chat.messages",
                      absl::StrCat("must hold 1 to ", kChatMessagesMax, " messages"));
  }
  ChatPrompt prompt;
  prompt.continue_final_message = chat->continue_final_message();
  prompt.add_generation_prompt = chat->has_add_generation_prompt() ? chat->add_generation_prompt()
                                                                   : !prompt.continue_final_message;
  for (int i = 0; i < chat->messages_size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(
        ChatMessage message,
        ReadMessage(chat->mutable_messages(i), absl::StrCat("chat.messages[", i, "].")));
    prompt.messages.push_back(std::move(message));
  }
  WEFT_RETURN_IF_ERROR(ReadVariables(*chat, &prompt));
  WEFT_RETURN_IF_ERROR(CheckChat(prompt, "chat."));
  return prompt;
}

void ListUnknown(const google::protobuf::Message& message, absl::string_view path,
                 std::vector<std::string>* out) {
  const google::protobuf::UnknownFieldSet& unknown =
      message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    out->push_back(absl::StrCat(path, unknown.field(i).number()));
  }
}

void ListUnknownChat(const weft::v1::ChatPrompt& chat, std::vector<std::string>* out) {
  ListUnknown(chat, "chat.", out);
  for (int i = 0; i < chat.messages_size(); ++i) {
    const std::string path = absl::StrCat("chat.messages[", i, "].");
    ListUnknown(chat.messages(i), path, out);
    for (int j = 0; j < chat.messages(i).tool_calls_size(); ++j) {
      ListUnknown(chat.messages(i).tool_calls(j), absl::StrCat(path, "tool_calls[", j, "]."), out);
    }
  }
}

}  // namespace weft::router

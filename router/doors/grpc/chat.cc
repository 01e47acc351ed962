#include "router/doors/grpc/chat.h"

#include <boost/json.hpp>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "google/protobuf/unknown_field_set.h"
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

absl::Status ReadMode(int mode, ToolChoice* choice) {
  switch (mode) {
    case weft::v1::TOOL_CHOICE_MODE_UNSPECIFIED:
    case weft::v1::TOOL_CHOICE_MODE_AUTO:
      return absl::OkStatus();
    case weft::v1::TOOL_CHOICE_MODE_NONE:
      choice->none = true;
      return absl::OkStatus();
    case weft::v1::TOOL_CHOICE_MODE_REQUIRED:
      choice->calls = PartsSpec::Calls::kRequired;
      return absl::OkStatus();
    default:
      return FieldError("chat.tool_choice.mode",
                        absl::StrCat("must be auto (1), none (2) or required (3), not ", mode));
  }
}

// With the tools that there are.
absl::StatusOr<ToolChoice> ReadToolChoice(const weft::v1::ChatPrompt& chat, ChatPrompt* prompt) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::value tools,
                        ReadList(chat.tools(), kToolsMax, "chat.tools"));
  WEFT_ASSIGN_OR_RETURN(ToolList list, ReadTools(tools, "chat.tools"));
  ToolChoice choice;
  choice.tools = std::move(list.specs);
  if (chat.has_parallel_tool_calls()) choice.parallel_calls = chat.parallel_tool_calls();
  const weft::v1::ToolChoice& from = chat.tool_choice();
  if (from.choice_case() == weft::v1::ToolChoice::kFunction) {
    WEFT_RETURN_IF_ERROR(CheckToolName(from.function(), "chat.tool_choice.function"));
    choice.calls = PartsSpec::Calls::kNamed;
    choice.named = from.function();
  }
  WEFT_RETURN_IF_ERROR(ReadMode(from.mode(), &choice));
  // Tools that the model may not call are not shown to it.
  if (!choice.none) prompt->tools = std::move(list.json);
  if (from.allowed().empty()) return choice;
  constexpr char kAllowed[] = "chat.tool_choice.allowed";
  if (choice.none || !choice.named.empty()) {
    return FieldError(kAllowed, "stands beside the mode auto or required alone");
  }
  WEFT_RETURN_IF_ERROR(CheckCount(static_cast<size_t>(from.allowed_size()), kToolsMax, kAllowed));
  for (int i = 0; i < from.allowed_size(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckToolName(from.allowed(i), absl::StrCat(kAllowed, "[", i, "]")));
  }
  choice.allowed.emplace(from.allowed().begin(), from.allowed().end());
  return choice;
}

}  // namespace

absl::StatusOr<ChatPrompt> ReadChat(weft::v1::ChatPrompt* chat, ToolChoice* choice) {
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
  WEFT_ASSIGN_OR_RETURN(*choice, ReadToolChoice(*chat, &prompt));
  WEFT_RETURN_IF_ERROR(ReadVariables(*chat, &prompt));
  WEFT_RETURN_IF_ERROR(CheckChat(prompt, "chat."));
  return prompt;
}

absl::Status ReadParts(const ModelFacts& model, const weft::v1::ResponseOptions& response,
                       ToolChoice choice, GenerateInput* input) {
  const bool told_apart = response.parts();
  const bool is_chat = std::holds_alternative<ChatPrompt>(input->prompt);
  if (response.omit_reasoning() && !told_apart) {
    return FieldError("response.omit_reasoning", "needs response.parts");
  }
  if (told_apart && !is_chat) {
    return FieldError("response.parts", "needs chat: other prompts say nothing of tools");
  }
  if (told_apart && input->echo_prompt) {
    return FieldError("response.echo_prompt",
                      "is not for an answer that is told apart: the prompt "
                      "is none of its parts");
  }
  if (!is_chat) return absl::OkStatus();
  choice.told_apart = told_apart;
  absl::StatusOr<std::shared_ptr<const PartsSpec>> parts = MakePartsSpec(
      std::move(choice), model.tool_parser, model.reasoning_parser, "chat.tool_choice");
  if (ErrorField(parts.status()) == "tools") return RenameField(parts.status(), "chat.tools");
  WEFT_RETURN_IF_ERROR(parts.status());
  const bool counts = *parts != nullptr && (told_apart || (*parts)->HoldsCalls());
  if (counts) input->parts = *std::move(parts);
  return absl::OkStatus();
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
  if (chat.has_tool_choice()) ListUnknown(chat.tool_choice(), "chat.tool_choice.", out);
  for (int i = 0; i < chat.messages_size(); ++i) {
    const std::string path = absl::StrCat("chat.messages[", i, "].");
    ListUnknown(chat.messages(i), path, out);
    for (int j = 0; j < chat.messages(i).tool_calls_size(); ++j) {
      ListUnknown(chat.messages(i).tool_calls(j), absl::StrCat(path, "tool_calls[", j, "]."), out);
    }
  }
}

}  // namespace weft::router

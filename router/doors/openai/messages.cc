#include "router/doors/openai/messages.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "boost/json/value.hpp"
#include "common/limits.h"
#include "router/doors/chat_json.h"
#include "router/doors/openai/tool_choice.h"

namespace weft::router {
namespace {

// Parts of other kinds of messages, or of what nobody serves.
constexpr RefusedField kRefusedInConversation[] = {{"chat_template", ""}};

constexpr RefusedField kRefusedInMessage[] = {
    {"function_call", ""}, {"audio", ""},   {"refusal", ""}, {"annotations", "[]"},
    {"prefix", "false"},   {"tools", "[]"}, {"images", "[]"}};

// The text of one part of a content.
std::optional<std::string> ReadPart(const boost::json::value& value, const std::string& path,
                                    FieldReader& message, std::vector<std::string>* unknown) {
  const boost::json::object* object = value.if_object();
  if (object == nullptr) {
    message.Fail(path, "must be an object");
    return std::nullopt;
  }
  FieldReader part(*object, absl::StrCat(message.path(), path, "."));
  const std::string type = part.String("type").value_or("");
  if (type != "text") part.Fail("type", "must be \"text\": other parts are not supported");
  std::optional<std::string> text = part.String("text");
  if (!text.has_value()) part.Fail("text", "is required");
  if (!part.ok()) {
    message.Fail(part.status());
    return std::nullopt;
  }
  part.AddUnknown(unknown);
  return text;
}

void ReadContent(FieldReader& message, ChatMessage* to, std::vector<std::string>* unknown) {
  const boost::json::value* content = message.Value("content");
  if (content == nullptr) {
    // A call of tools speaks for itself.
    to->no_content = true;
    if (to->tool_calls.empty()) {
      message.Fail("content",
                   to->role == "assistant" ? "is required without tool_calls" : "is required");
    }
    return;
  }
  if (const boost::json::string* text = content->if_string()) {
    to->content.assign(text->data(), text->size());
    return;
  }
  const boost::json::array* parts = content->if_array();
  if (parts == nullptr) {
    message.Fail("content", absl::StrCat("must be a string or a list of text parts, not ",
                                         JsonKindName(*content)));
    return;
  }
  if (parts->size() > kContentPartsMax) {
    message.Fail("content", absl::StrCat("must have at most ", kContentPartsMax, " parts, not ",
                                         parts->size()));
    return;
  }
  for (size_t i = 0; i < parts->size(); ++i) {
    std::optional<std::string> text =
        ReadPart((*parts)[i], absl::StrCat("content[", i, "]"), message, unknown);
    if (!text.has_value()) return;
    to->content_parts.push_back(*std::move(text));
  }
}

std::string ReadRole(FieldReader& message) {
  const std::optional<std::string> role = message.String("role");
  constexpr absl::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (!role.has_value()) {
    message.Fail("role", "is required");
  } else if (std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles)) {
    message.Fail("role", *role == "function"
                             ? "function is not supported; use tool, with tool_call_id"
                             : "must be system, developer, user, assistant or tool");
  }
  return role.value_or("");
}

// What an assistant thought has three names among the servers that take it.
std::string ReadReasoning(FieldReader& message) {
  std::optional<std::string> said = message.String("reasoning_content");
  for (const char* other_name : {"reasoning", "thinking"}) {
    std::optional<std::string> other = message.String(other_name);
    if (said.has_value() && other.has_value() && *said != *other) {
      message.Fail(other_name, "differs from its other name; give one of them");
    }
    if (!said.has_value()) said = std::move(other);
  }
  return said.value_or("");
}

ToolCall ReadCall(const boost::json::value& value, const std::string& path, FieldReader& message,
                  std::vector<std::string>* unknown) {
  ToolCall call;
  const boost::json::object* object = value.if_object();
  if (object == nullptr) {
    message.Fail(path, "must be an object");
    return call;
  }
  FieldReader outer(*object, absl::StrCat(message.path(), path, "."));
  call.id = outer.String("id").value_or("");
  if (call.id.size() > kToolCallIdBytesMax) {
    outer.Fail("id", absl::StrCat("must have at most ", kToolCallIdBytesMax, " bytes"));
  }
  if (outer.String("type").value_or("function") != "function") {
    outer.Fail("type", "must be \"function\"");
  }
  outer.Accept("index");  // of a streamed answer that comes back
  const boost::json::object* function = outer.Object("function");
  if (function == nullptr) {
    outer.Fail("function", "is required");
    message.Fail(outer.status());
    return call;
  }
  FieldReader inner(*function, absl::StrCat(message.path(), path, ".function."));
  call.name = inner.String("name").value_or("");
  inner.Fail(CheckToolName(call.name, absl::StrCat(inner.path(), "name")));
  call.arguments = "{}";
  if (const boost::json::value* arguments = inner.Value("arguments")) {
    absl::StatusOr<std::string> text =
        ReadArguments(*arguments, absl::StrCat(inner.path(), "arguments"));
    inner.Fail(text.status());
    if (text.ok()) call.arguments = *std::move(text);
  }
  message.Fail(outer.status());
  message.Fail(inner.status());
  outer.AddUnknown(unknown);
  inner.AddUnknown(unknown);
  return call;
}

void ReadCalls(FieldReader& message, ChatMessage* to, std::vector<std::string>* unknown) {
  const boost::json::array* calls = message.Array("tool_calls");
  if (calls == nullptr) return;
  // The number is checked with the rest of the message; no more than that are read.
  const size_t count = std::min(calls->size(), kToolCallsMax + 1);
  for (size_t i = 0; i < count && message.ok(); ++i) {
    to->tool_calls.push_back(
        ReadCall((*calls)[i], absl::StrCat("tool_calls[", i, "]"), message, unknown));
  }
}

ChatMessage ReadMessage(FieldReader& message, std::vector<std::string>* unknown) {
  ChatMessage to;
  to.role = ReadRole(message);
  message.Refuse(kRefusedInMessage);
  to.name = message.String("name").value_or("");
  // Ollama's name for that of a tool that answers.
  if (std::optional<std::string> tool = message.String("tool_name")) to.name = *std::move(tool);
  to.tool_call_id = message.String("tool_call_id").value_or("");
  to.reasoning_content = ReadReasoning(message);
  ReadCalls(message, &to, unknown);
  ReadContent(message, &to, unknown);
  message.Fail(CheckMessage(to, message.path()));
  message.AddUnknown(unknown);
  return to;
}

void ReadMessages(FieldReader& fields, ChatPrompt* prompt, std::vector<std::string>* unknown) {
  const boost::json::array* messages = fields.Array("messages");
  if (!fields.ok()) return;
  if (messages == nullptr) {
    fields.Fail("messages", "is required");
    return;
  }
  if (messages->empty() || messages->size() > kChatMessagesMax) {
    fields.Fail("messages", absl::StrCat("must hold 1 to ", kChatMessagesMax, " messages"));
    return;
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string name = absl::StrCat("messages[", i, "]");
    const boost::json::object* object = (*messages)[i].if_object();
    if (object == nullptr) {
      fields.Fail(name, "must be an object");
      return;
    }
    FieldReader message(*object, absl::StrCat(name, "."));
    prompt->messages.push_back(ReadMessage(message, unknown));
    if (!message.ok()) {
      fields.Fail(message.status());
      return;
    }
  }
}

// A field that is JSON for the template; empty when it is absent or wrong.
std::string ReadJson(FieldReader& fields, absl::string_view name,
                     absl::StatusOr<std::string> (*read)(const boost::json::value&,
                                                         absl::string_view)) {
  const boost::json::value* value = fields.Value(name);
  if (value == nullptr) return "";
  absl::StatusOr<std::string> text = read(*value, absl::StrCat(fields.path(), name));
  fields.Fail(text.status());
  return text.ok() ? *std::move(text) : "";
}

void ReadToolFields(FieldReader& fields, ChatPrompt* prompt, ToolChoice* choice,
                    std::vector<std::string>* unknown) {
  ToolList tools;
  if (const boost::json::value* value = fields.Value("tools")) {
    absl::StatusOr<ToolList> read = ReadTools(*value, absl::StrCat(fields.path(), "tools"));
    fields.Fail(read.status());
    tools = std::move(read).value_or(ToolList());
  }
  *choice = ReadToolChoice(fields, ToolShape::kNested, unknown);
  OfferTools(std::move(tools), choice, prompt);
}

}  // namespace

void ReadChatPrompt(FieldReader& fields, ChatPrompt* prompt, ToolChoice* choice,
                    std::vector<std::string>* unknown) {
  ReadMessages(fields, prompt, unknown);
  ReadToolFields(fields, prompt, choice, unknown);
  prompt->documents = ReadJson(fields, "documents", &ReadDocuments);
  prompt->template_kwargs = ReadJson(fields, "chat_template_kwargs", &ReadTemplateKwargs);
  if (std::optional<std::string> effort = fields.String("reasoning_effort")) {
    fields.Fail(CheckReasoningEffort(*effort, absl::StrCat(fields.path(), "reasoning_effort")));
    prompt->reasoning_effort = *std::move(effort);
  }
  if (const boost::json::object* kwargs = fields.Object("chat_template_kwargs");
      kwargs != nullptr && !prompt->reasoning_effort.empty() &&
      kwargs->contains("reasoning_effort")) {
    fields.Fail("reasoning_effort", "is in chat_template_kwargs too; give one of them");
  }
  prompt->continue_final_message = fields.Bool("continue_final_message").value_or(false);
  prompt->add_generation_prompt =
      fields.Bool("add_generation_prompt").value_or(!prompt->continue_final_message);
  fields.Refuse(kRefusedInConversation);
  if (fields.ok()) fields.Fail(CheckChat(*prompt, fields.path()));
}

absl::Span<const RefusedField> RefusedConversationFields() { return kRefusedInConversation; }
absl::Span<const RefusedField> RefusedMessageFields() { return kRefusedInMessage; }

}  // namespace weft::router

// Checks of a conversation that all doors share: what it holds as JSON (tools, documents, variables
// of the template, arguments of calls), which field belongs to which role, and its size. Pure; any
// thread. Knows no wire: errors name the path that a door gives.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json/value.hpp"
#include "router/answer_parts.h"
#include "router/chat_prompt.h"

namespace weft::router {

// JSON that comes as text, nested at most as deep as a body.
absl::StatusOr<boost::json::value> ParseChatJson(absl::string_view text, absl::string_view path);

// Tools of a request.
struct ToolList {
  // As chat templates are given them: the JSON text of the list; empty without tools.
  std::string json;
  std::vector<ToolSpec> specs;
};
// Checks a list of {"type": "function", "function": {...}}. Errors name `path` and what lies below
// it.
absl::StatusOr<ToolList> ReadTools(const boost::json::value& tools, absl::string_view path);

// Whether it is the JSON text of an object: arguments of a call that was cut off are not.
bool IsJsonObject(absl::string_view text);

// Each checks a value and gives its JSON text; empty for an empty list or object. Errors name
// `path` and what lies below it.
absl::StatusOr<std::string> ReadDocuments(const boost::json::value& documents,
                                          absl::string_view path);
absl::StatusOr<std::string> ReadTemplateKwargs(const boost::json::value& kwargs,
                                               absl::string_view path);
// Of the arguments of a call as an object; as text it is kept as it came, and an empty one is {}.
absl::StatusOr<std::string> ReadArguments(const boost::json::value& arguments,
                                          absl::string_view path);

// 1 to kToolNameBytesMax of [A-Za-z0-9_-].
absl::Status CheckToolName(absl::string_view name, absl::string_view path);
// One of the words that OpenAI has, and some that templates know beside them.
absl::Status CheckReasoningEffort(absl::string_view effort, absl::string_view path);

// Which tools an answer calls, as a request says it.
struct ToolChoice {
  // What there is to choose from.
  std::vector<ToolSpec> tools;
  // The model is not told of them.
  bool none = false;
  PartsSpec::Calls calls = PartsSpec::Calls::kAuto;
  std::string named;
  // Of the tools the model is told of these alone may be called; nothing: all.
  std::optional<std::vector<std::string>> allowed;
  bool parallel_calls = true;
  // As of PartsSpec.
  bool told_apart = true;
};

// The answer chooses from `tools`, and the model is told of those that it may call.
void OfferTools(ToolList tools, ToolChoice* choice, ChatPrompt* prompt);

// What is told apart in a chat's answers of a model with these parsers; null for nothing. Errors
// name `tool_choice_path`: a tool that is not there, or calls of a model without a format of them.
absl::StatusOr<std::shared_ptr<const PartsSpec>> MakePartsSpec(ToolChoice choice,
                                                               const std::string& tool_parser,
                                                               const std::string& reasoning_parser,
                                                               absl::string_view tool_choice_path);

// The content of a message that came as a list of parts.
void SetContent(std::vector<std::string> texts, ChatMessage* message);

// Fields that the role has, and their sizes. `path` is that of the message.
absl::Status CheckMessage(const ChatMessage& message, absl::string_view path);
// What only the whole conversation shows. `path` stands before the names of its fields.
absl::Status CheckChat(const ChatPrompt& chat, absl::string_view path);

}  // namespace weft::router

#include "router/doors/chat_json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/errors.h"

namespace weft::router {
namespace {

namespace json = boost::json;

constexpr size_t kDepthMax = 32;
constexpr size_t kVariableNameBytesMax = 64;
constexpr absl::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};

// Variables and functions that a template has from the server; a request must not stand in their
// place.
constexpr absl::string_view kOwnVariables[] = {"messages",
                                               "tools",
                                               "documents",
                                               "add_generation_prompt",
                                               "continue_final_message",
                                               "bos_token",
                                               "eos_token",
                                               "unk_token",
                                               "pad_token",
                                               "sep_token",
                                               "cls_token",
                                               "mask_token",
                                               "additional_special_tokens",
                                               "raise_exception",
                                               "strftime_now",
                                               "namespace",
                                               "range",
                                               "dict",
                                               "cycler",
                                               "joiner",
                                               "debug",
                                               "loop",
                                               "self",
                                               "caller",
                                               "chat_template",
                                               "tokenize",
                                               "conversation"};

absl::string_view View(const json::string& text) { return {text.data(), text.size()}; }
absl::string_view View(json::string_view text) { return {text.data(), text.size()}; }

absl::string_view Kind(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

absl::Status MustBe(absl::string_view what, const json::value& found, absl::string_view path) {
  return FieldError(path, absl::StrCat("must be ", what, ", not ", Kind(found)));
}

// The member when it is there and not null.
const json::value* Find(const json::object& object, absl::string_view name) {
  const json::value* value = object.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

absl::StatusOr<const json::array*> List(const json::value& value, size_t count_max,
                                        absl::string_view path) {
  const json::array* list = value.if_array();
  if (list == nullptr) return MustBe("an array", value, path);
  if (list->size() > count_max) {
    return FieldError(
        path, absl::StrCat("must have at most ", count_max, " entries, not ", list->size()));
  }
  return list;
}

absl::Status CheckFunction(const json::object& function, const std::string& path) {
  const json::value* name = Find(function, "name");
  if (name == nullptr) return FieldError(path + ".name", "is required");
  if (!name->is_string()) return MustBe("a string", *name, path + ".name");
  WEFT_RETURN_IF_ERROR(CheckToolName(View(name->get_string()), path + ".name"));
  const json::value* description = Find(function, "description");
  if (description != nullptr && !description->is_string()) {
    return MustBe("a string", *description, path + ".description");
  }
  const json::value* parameters = Find(function, "parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return MustBe("an object, a JSON schema", *parameters, path + ".parameters");
  }
  const json::value* strict = Find(function, "strict");
  if (strict != nullptr && !strict->is_bool()) {
    return MustBe("a boolean", *strict, path + ".strict");
  }
  return absl::OkStatus();
}

// Of a function that was checked.
ToolSpec SpecOf(const json::object& function) {
  ToolSpec spec;
  spec.name = std::string(View(function.at("name").get_string()));
  if (const json::value* parameters = Find(function, "parameters")) {
    spec.parameters = json::serialize(*parameters);
  }
  const json::value* strict = Find(function, "strict");
  spec.strict = strict != nullptr && strict->get_bool();
  return spec;
}

// The object under "function" of one tool.
absl::StatusOr<const json::object*> FunctionOf(const json::value& tool, const std::string& path) {
  const json::object* object = tool.if_object();
  if (object == nullptr) return MustBe("an object", tool, path);
  const json::value* type = Find(*object, "type");
  if (type == nullptr) return FieldError(path + ".type", "is required");
  if (!type->is_string() || View(type->get_string()) != "function") {
    return FieldError(path + ".type", "must be \"function\"");
  }
  const json::value* function = Find(*object, "function");
  if (function == nullptr) return FieldError(path + ".function", "is required");
  if (!function->is_object()) return MustBe("an object", *function, path + ".function");
  return &function->get_object();
}

bool IsVariableName(absl::string_view name) {
  if (name.empty() || name.size() > kVariableNameBytesMax || absl::ascii_isdigit(name[0])) {
    return false;
  }
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool IsOneOf(absl::string_view text, std::initializer_list<absl::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

}  // namespace

absl::StatusOr<json::value> ParseChatJson(absl::string_view text, absl::string_view path) {
  json::parse_options options;
  options.max_depth = kDepthMax;
  json::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (!error) return value;
  return FieldError(path, absl::StrCat("is not valid JSON: ", error.message()));
}

absl::StatusOr<ToolList> ReadTools(const json::value& tools, absl::string_view path) {
  ToolList found;
  WEFT_ASSIGN_OR_RETURN(const json::array* list, List(tools, kToolsMax, path));
  absl::flat_hash_set<absl::string_view> names;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string tool = absl::StrCat(path, "[", i, "]");
    WEFT_ASSIGN_OR_RETURN(const json::object* function, FunctionOf((*list)[i], tool));
    WEFT_RETURN_IF_ERROR(CheckFunction(*function, tool + ".function"));
    const absl::string_view name = View(function->at("name").get_string());
    if (!names.insert(name).second) {
      return FieldError(tool + ".function.name",
                        absl::StrCat("\"", name, "\" is the name of a tool before it"));
    }
    found.specs.push_back(SpecOf(*function));
  }
  if (!list->empty()) found.json = json::serialize(tools);
  return found;
}

bool IsJsonObject(absl::string_view text) {
  json::error_code error;
  const json::value value = json::parse({text.data(), text.size()}, error);
  return !error && value.is_object();
}

absl::StatusOr<std::string> ReadDocuments(const json::value& documents, absl::string_view path) {
  WEFT_ASSIGN_OR_RETURN(const json::array* list, List(documents, kDocumentsMax, path));
  for (size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) {
      return MustBe("an object", (*list)[i], absl::StrCat(path, "[", i, "]"));
    }
  }
  return list->empty() ? std::string() : json::serialize(documents);
}

absl::StatusOr<std::string> ReadTemplateKwargs(const json::value& kwargs, absl::string_view path) {
  const json::object* object = kwargs.if_object();
  if (object == nullptr) return MustBe("an object", kwargs, path);
  if (object->size() > kTemplateKwargsMax) {
    return FieldError(path, absl::StrCat("must have at most ", kTemplateKwargsMax,
                                         " variables, not ", object->size()));
  }
  for (const json::key_value_pair& entry : *object) {
    const absl::string_view name = View(entry.key());
    if (!IsVariableName(name)) {
      return FieldError(path, absl::StrCat("must have names of 1 to ", kVariableNameBytesMax,
                                           " letters, digits and '_', no digit first"));
    }
    if (std::find(std::begin(kOwnVariables), std::end(kOwnVariables), name) !=
        std::end(kOwnVariables)) {
      return FieldError(absl::StrCat(path, ".", name), "is set by the server alone");
    }
  }
  return object->empty() ? std::string() : json::serialize(kwargs);
}

absl::StatusOr<std::string> ReadArguments(const json::value& arguments, absl::string_view path) {
  if (arguments.is_object()) return json::serialize(arguments);
  const json::string* text = arguments.if_string();
  if (text == nullptr) return MustBe("the JSON text of an object", arguments, path);
  if (absl::StripAsciiWhitespace(View(*text)).empty()) return std::string("{}");
  WEFT_ASSIGN_OR_RETURN(const json::value value, ParseChatJson(View(*text), path));
  if (!value.is_object()) return MustBe("the JSON text of an object", value, path);
  return std::string(View(*text));
}

absl::Status CheckToolName(absl::string_view name, absl::string_view path) {
  const bool good = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  });
  if (good && !name.empty() && name.size() <= kToolNameBytesMax) return absl::OkStatus();
  return FieldError(
      path, absl::StrCat("must have 1 to ", kToolNameBytesMax, " characters of [A-Za-z0-9_-]"));
}

absl::Status CheckReasoningEffort(absl::string_view effort, absl::string_view path) {
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) != std::end(kEfforts)) {
    return absl::OkStatus();
  }
  return FieldError(path, absl::StrCat("must be one of ", absl::StrJoin(kEfforts, ", ")));
}

void OfferTools(ToolList tools, ToolChoice* choice, ChatPrompt* prompt) {
  choice->tools = std::move(tools.specs);
  if (!choice->none) prompt->tools = std::move(tools.json);
}

absl::StatusOr<std::shared_ptr<const PartsSpec>> MakePartsSpec(ToolChoice choice,
                                                               const std::string& tool_parser,
                                                               const std::string& reasoning_parser,
                                                               absl::string_view tool_choice_path) {
  auto spec = std::make_shared<PartsSpec>();
  spec->told_apart = choice.told_apart;
  spec->reasoning_parser = reasoning_parser;
  spec->calls = choice.calls;
  spec->named = choice.named;
  spec->parallel_calls = choice.parallel_calls;
  if (!choice.none) {
    for (ToolSpec& tool : choice.tools) {
      const bool allowed = !choice.allowed.has_value() ||
                           std::find(choice.allowed->begin(), choice.allowed->end(), tool.name) !=
                               choice.allowed->end();
      if (allowed) spec->tools.push_back(std::move(tool));
    }
  }
  const auto there = [&spec](const std::string& name) {
    return std::any_of(spec->tools.begin(), spec->tools.end(),
                       [&name](const ToolSpec& tool) { return tool.name == name; });
  };
  for (const std::string& name : choice.allowed.value_or(std::vector<std::string>())) {
    if (!there(name)) {
      return FieldError(tool_choice_path,
                        absl::StrCat("names \"", name, "\", which is none of the tools"));
    }
  }
  if (spec->calls == PartsSpec::Calls::kNamed && !there(spec->named)) {
    return FieldError(tool_choice_path,
                      absl::StrCat("names \"", spec->named, "\", which is none of the tools"));
  }
  if (spec->calls == PartsSpec::Calls::kRequired && spec->tools.empty()) {
    return FieldError(tool_choice_path, "requires a call, and there are no tools");
  }
  if (tool_parser == "none") {
    // Calls stay text; what has to be one cannot be.
    if (spec->HoldsCalls()) {
      return FieldError(spec->calls == PartsSpec::Calls::kAuto ? "tools" : tool_choice_path,
                        "asks for calls, and the server has no format for them: it was started "
                        "with --tool-parser none");
    }
    spec->tools.clear();
  }
  if (!spec->tools.empty()) spec->tool_parser = tool_parser;
  if (spec->tools.empty() && reasoning_parser == "none") return nullptr;
  return spec;
}

void SetContent(std::vector<std::string> texts, ChatMessage* message) {
  if (texts.size() == 1) {
    message->content = std::move(texts.front());
  } else {
    message->content_parts = std::move(texts);
  }
}

absl::Status CheckMessage(const ChatMessage& message, absl::string_view path) {
  const absl::string_view role = message.role;
  const bool asks = IsOneOf(role, {"system", "developer", "user"});
  if (message.name.size() > kToolNameBytesMax) {
    return FieldError(absl::StrCat(path, "name"),
                      absl::StrCat("must have at most ", kToolNameBytesMax, " bytes"));
  }
  if (!message.tool_calls.empty() && (asks || role == "tool")) {
    return FieldError(absl::StrCat(path, "tool_calls"),
                      absl::StrCat("is for the role assistant, not ", role));
  }
  if (message.tool_calls.size() > kToolCallsMax) {
    return FieldError(absl::StrCat(path, "tool_calls"),
                      absl::StrCat("must have at most ", kToolCallsMax, " entries, not ",
                                   message.tool_calls.size()));
  }
  if (!message.tool_call_id.empty() && (asks || role == "assistant")) {
    return FieldError(absl::StrCat(path, "tool_call_id"),
                      absl::StrCat("is for the role tool, not ", role));
  }
  if (message.tool_call_id.size() > kToolCallIdBytesMax) {
    return FieldError(absl::StrCat(path, "tool_call_id"),
                      absl::StrCat("must have at most ", kToolCallIdBytesMax, " bytes"));
  }
  if (!message.reasoning_content.empty() && (asks || role == "tool")) {
    return FieldError(absl::StrCat(path, "reasoning_content"),
                      absl::StrCat("is for the role assistant, not ", role));
  }
  return absl::OkStatus();
}

absl::Status CheckChat(const ChatPrompt& chat, absl::string_view path) {
  if (chat.continue_final_message && chat.add_generation_prompt) {
    return FieldError(absl::StrCat(path, "continue_final_message"),
                      "goes with add_generation_prompt false alone");
  }
  if (chat.continue_final_message && chat.messages.back().no_content) {
    return FieldError(absl::StrCat(path, "continue_final_message"),
                      "needs a last message with content");
  }
  if (chat.messages.size() > kChatMessagesMax) {
    return FieldError(
        absl::StrCat(path, "messages"),
        absl::StrCat("become ", chat.messages.size(), " turns, at most ", kChatMessagesMax));
  }
  if (TextBytes(chat) > kPromptBytesMax) {
    return FieldError(absl::StrCat(path, "messages"),
                      absl::StrCat("hold more than ", kPromptBytesMax,
                                   " bytes of text, tools and documents included"));
  }
  return absl::OkStatus();
}

}  // namespace weft::router

#include "router/doors/responses/items.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "boost/json/value.hpp"
#include "common/limits.h"
#include "router/doors/chat_json.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr absl::string_view kMessageParts[] = {"input_text", "output_text"};
constexpr absl::string_view kOutputParts[] = {"input_text"};
constexpr absl::string_view kReasoningParts[] = {"reasoning_text"};
constexpr absl::string_view kSummaryParts[] = {"summary_text"};

// What an answer's own items bring back with them, and says nothing to a template.
constexpr absl::string_view kAcceptedInItem[] = {"id", "status", "phase"};
constexpr absl::string_view kAcceptedInPart[] = {"annotations", "logprobs",
                                                 "prompt_cache_breakpoint"};

// Of calls that something else than the client makes or answers.
constexpr RefusedField kRefusedInCall[] = {
    {"namespace", ""}, {"caller", R"({"type":"direct"})"}, {"async", "false"}};

using Types = absl::Span<const absl::string_view>;

// A string, or a list of parts of one of `types`. Errors go to `fields`.
std::vector<std::string> ReadTexts(const boost::json::value& value, const std::string& path,
                                   Types types, FieldReader& fields,
                                   std::vector<std::string>* unknown) {
  if (const boost::json::string* text = value.if_string()) {
    return {std::string(text->data(), text->size())};
  }
  std::vector<std::string> texts;
  const boost::json::array* parts = value.if_array();
  if (parts == nullptr || parts->size() > kContentPartsMax) {
    fields.Fail(FieldError(
        path, absl::StrCat("must be a string or a list of at most ", kContentPartsMax, " parts")));
    return texts;
  }
  for (size_t i = 0; i < parts->size() && fields.ok(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    const boost::json::object* object = (*parts)[i].if_object();
    if (object == nullptr) {
      fields.Fail(FieldError(place, "must be an object"));
      break;
    }
    FieldReader part(*object, absl::StrCat(place, "."));
    for (const absl::string_view name : kAcceptedInPart) part.Accept(name);
    const std::string type = part.String("type").value_or("");
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      part.Fail("type", absl::StrCat("must be ", absl::StrJoin(types, " or "),
                                     ": other parts are not supported"));
    }
    std::optional<std::string> text = part.String("text");
    if (!text.has_value()) part.Fail("text", "is required");
    fields.Fail(part.status());
    part.AddUnknown(unknown);
    texts.push_back(std::move(text).value_or(""));
  }
  return texts;
}

class ItemReader {
 public:
  ItemReader(FieldReader& fields, ChatPrompt* prompt, std::vector<std::string>* unknown)
      : fields_(fields), prompt_(prompt), unknown_(unknown) {}

  void Read(const boost::json::object& object, const std::string& path) {
    FieldReader item(object, absl::StrCat(path, "."));
    for (const absl::string_view name : kAcceptedInItem) item.Accept(name);
    const std::string type = item.String("type").value_or(object.contains("role") ? "message" : "");
    if (type == "message") {
      ReadMessage(item);
    } else if (type == "function_call") {
      ReadCall(item);
    } else if (type == "function_call_output") {
      ReadOutput(item);
    } else if (type == "reasoning") {
      ReadReasoning(item);
    } else {
      item.Fail("type",
                "must be message, function_call, function_call_output or reasoning: no other item "
                "is supported, and none is kept here to be referred to");
    }
    fields_.Fail(item.status());
    item.AddUnknown(unknown_);
  }

  // Nothing more comes of what the assistant said in one turn.
  void EndTurn() {
    if (!turn_.has_value()) return;
    // Reasoning that was cut off had no answer behind it.
    if (turn_->tool_calls.empty()) turn_->no_content = false;
    prompt_->messages.push_back(*std::exchange(turn_, std::nullopt));
  }

 private:
  ChatMessage& Turn() {
    if (!turn_.has_value()) {
      turn_.emplace("assistant", "");
      turn_->no_content = true;
    }
    return *turn_;
  }

  void ReadMessage(FieldReader& item) {
    const std::string role = item.String("role").value_or("");
    const boost::json::value* content = item.Value("content");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      item.Fail("role", "must be user, assistant, system or developer");
    }
    if (content == nullptr) item.Fail("content", "is required");
    if (!item.ok()) return;
    std::vector<std::string> texts =
        ReadTexts(*content, absl::StrCat(item.path(), "content"), kMessageParts, item, unknown_);
    if (role != "assistant") {
      EndTurn();
      ChatMessage message(role, "");
      SetContent(std::move(texts), &message);
      prompt_->messages.push_back(std::move(message));
      return;
    }
    if (turn_.has_value() && (!turn_->no_content || !turn_->tool_calls.empty())) EndTurn();
    ChatMessage& turn = Turn();
    turn.no_content = false;
    SetContent(std::move(texts), &turn);
  }

  void ReadCall(FieldReader& item) {
    ToolCall call;
    call.id = ReadCallId(item);
    call.name = item.String("name").value_or("");
    item.Fail(CheckToolName(call.name, absl::StrCat(item.path(), "name")));
    if (const boost::json::value* arguments = item.Value("arguments")) {
      absl::StatusOr<std::string> text =
          ReadArguments(*arguments, absl::StrCat(item.path(), "arguments"));
      item.Fail(text.status());
      if (text.ok()) call.arguments = *std::move(text);
    } else {
      item.Fail("arguments", "is required");
    }
    item.Refuse(kRefusedInCall);
    ChatMessage& turn = Turn();
    if (turn.tool_calls.size() == kToolCallsMax) {
      item.Fail("type", absl::StrCat("is a function_call behind ", kToolCallsMax,
                                     " others; one turn has no more"));
    }
    turn.tool_calls.push_back(std::move(call));
  }

  void ReadOutput(FieldReader& item) {
    EndTurn();
    ChatMessage result("tool", "");
    result.tool_call_id = ReadCallId(item);
    if (std::optional<std::string> name = item.String("name")) {
      item.Fail(CheckToolName(*name, absl::StrCat(item.path(), "name")));
      result.name = *std::move(name);
    }
    item.Refuse(kRefusedInCall);
    const boost::json::value* output = item.Value("output");
    if (output == nullptr) return item.Fail("output", "is required");
    SetContent(
        ReadTexts(*output, absl::StrCat(item.path(), "output"), kOutputParts, item, unknown_),
        &result);
    prompt_->messages.push_back(std::move(result));
  }

  // What the model thought, or what others say in short of what theirs did.
  void ReadReasoning(FieldReader& item) {
    EndTurn();
    static constexpr RefusedField kRefused[] = {{"encrypted_content", ""}};
    item.Refuse(kRefused);
    const auto texts = [this, &item](const char* name, Types types) {
      const boost::json::value* value = item.Value(name);
      if (value == nullptr) return std::string();
      return absl::StrJoin(
          ReadTexts(*value, absl::StrCat(item.path(), name), types, item, unknown_), "\n");
    };
    std::string summary = texts("summary", kSummaryParts);
    std::string content = texts("content", kReasoningParts);
    Turn().reasoning_content = content.empty() ? std::move(summary) : std::move(content);
  }

  static std::string ReadCallId(FieldReader& item) {
    std::string id = item.String("call_id").value_or("");
    if (id.empty() || id.size() > kToolCallIdBytesMax) {
      item.Fail("call_id", absl::StrCat("must have 1 to ", kToolCallIdBytesMax, " bytes"));
    }
    return id;
  }

  FieldReader& fields_;
  ChatPrompt* const prompt_;
  std::vector<std::string>* const unknown_;
  // What the assistant says in one turn, as far as it was read.
  std::optional<ChatMessage> turn_;
};

void ReadItems(const boost::json::array& items, FieldReader& fields, ChatPrompt* prompt,
               std::vector<std::string>* unknown) {
  if (items.empty() || items.size() > kChatMessagesMax) {
    return fields.Fail("input", absl::StrCat("must hold 1 to ", kChatMessagesMax, " items"));
  }
  ItemReader reader(fields, prompt, unknown);
  for (size_t i = 0; i < items.size() && fields.ok(); ++i) {
    const std::string path = absl::StrCat("input[", i, "]");
    const boost::json::object* object = items[i].if_object();
    if (object == nullptr) return fields.Fail(path, "must be an object");
    reader.Read(*object, path);
  }
  reader.EndTurn();
}

}  // namespace

void ReadResponsesInput(FieldReader& fields, ChatPrompt* prompt,
                        std::vector<std::string>* unknown) {
  if (std::optional<std::string> text = fields.String("instructions")) {
    if (!text->empty()) prompt->messages.emplace_back("system", *std::move(text));
  }
  const boost::json::value* input = fields.Value("input");
  if (input == nullptr) return fields.Fail("input", "is required");
  if (const boost::json::string* text = input->if_string()) {
    if (text->empty()) fields.Fail("input", "must not be empty");
    prompt->messages.emplace_back("user", std::string(text->data(), text->size()));
  } else if (const boost::json::array* items = input->if_array()) {
    ReadItems(*items, fields, prompt, unknown);
  } else {
    fields.Fail("input",
                absl::StrCat("must be a string or a list of items, not ", JsonKindName(*input)));
  }
}

}  // namespace weft::router

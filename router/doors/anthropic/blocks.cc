#include "router/doors/anthropic/blocks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "common/limits.h"
#include "router/doors/http/flat_tools.h"

namespace weft::router {
namespace {

// What an answer of the model itself brings back, and hints that change nothing here.
constexpr absl::string_view kAcceptedInBlock[] = {"cache_control", "citations", "caller"};
constexpr absl::string_view kAcceptedInTool[] = {"cache_control"};

constexpr FlatToolForm kToolForm = {"custom",
                                    /*type_optional=*/true,
                                    "input_schema",
                                    /*schema_required=*/true,
                                    kAcceptedInTool,
                                    {}};

class BlockReader {
 public:
  BlockReader(const boost::json::object& object, const std::string& path, FieldReader& parent,
              std::vector<std::string>* unknown)
      : fields_(object, absl::StrCat(path, ".")), parent_(parent), unknown_(unknown) {
    for (const absl::string_view name : kAcceptedInBlock) fields_.Accept(name);
    type_ = fields_.String("type").value_or("");
  }
  ~BlockReader() {
    parent_.Fail(fields_.status());
    fields_.AddUnknown(unknown_);
  }
  BlockReader(const BlockReader&) = delete;

  const std::string& type() const { return type_; }
  FieldReader& fields() { return fields_; }
  std::string Text(absl::string_view name) {
    std::optional<std::string> text = fields_.String(name);
    if (!text.has_value()) fields_.Fail(name, "is required");
    return std::move(text).value_or("");
  }

 private:
  FieldReader fields_;
  FieldReader& parent_;
  std::vector<std::string>* const unknown_;
  std::string type_;
};

// The blocks under `name`; calls `read` with each and its path. False when it is no list.
template <typename Read>
bool EachBlock(const boost::json::value& value, const std::string& path, FieldReader& fields,
               Read read) {
  const boost::json::array* list = value.if_array();
  if (list == nullptr) {
    fields.Fail(path,
                absl::StrCat("must be a string or a list of blocks, not ", JsonKindName(value)));
    return false;
  }
  if (list->size() > kContentPartsMax) {
    fields.Fail(
        path, absl::StrCat("must have at most ", kContentPartsMax, " blocks, not ", list->size()));
    return false;
  }
  for (size_t i = 0; i < list->size() && fields.ok(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    const boost::json::object* block = (*list)[i].if_object();
    if (block == nullptr) {
      fields.Fail(place, "must be an object");
      return false;
    }
    read(*block, place);
  }
  return fields.ok();
}

// A string, or blocks of text alone.
std::vector<std::string> ReadTexts(const boost::json::value& value, const std::string& path,
                                   FieldReader& fields, std::vector<std::string>* unknown) {
  if (const boost::json::string* text = value.if_string()) {
    return {std::string(text->data(), text->size())};
  }
  std::vector<std::string> texts;
  EachBlock(value, path, fields, [&](const boost::json::object& object, const std::string& place) {
    BlockReader block(object, place, fields, unknown);
    if (block.type() != "text") {
      block.fields().Fail("type", "must be \"text\": other blocks are not supported here");
      return;
    }
    texts.push_back(block.Text("text"));
  });
  return texts;
}

class MessageReader {
 public:
  MessageReader(FieldReader& fields, ChatPrompt* prompt, std::vector<std::string>* unknown)
      : fields_(fields), prompt_(prompt), unknown_(unknown) {}

  void Read(const boost::json::object& object, const std::string& path) {
    FieldReader message(object, absl::StrCat(path, "."));
    said_ = ChatMessage();
    said_.role = message.String("role").value_or("");
    texts_.clear();
    if (said_.role != "user" && said_.role != "assistant") {
      message.Fail("role", "must be user or assistant");
    }
    const boost::json::value* content = message.Value("content");
    if (content == nullptr) message.Fail("content", "is required");
    fields_.Fail(message.status());
    message.AddUnknown(unknown_);
    if (!fields_.ok()) return;
    if (const boost::json::string* text = content->if_string()) {
      texts_.emplace_back(text->data(), text->size());
    } else {
      EachBlock(*content, path + ".content", fields_,
                [this](const boost::json::object& block, const std::string& place) {
                  BlockReader reader(block, place, fields_, unknown_);
                  ReadBlock(reader);
                });
    }
    if (fields_.ok()) Say(path);
  }

 private:
  void ReadBlock(BlockReader& block) {
    const bool user = said_.role == "user";
    if (block.type() == "text") {
      texts_.push_back(block.Text("text"));
    } else if (block.type() == "tool_result" && user) {
      ReadResult(block);
    } else if (block.type() == "tool_use" && !user) {
      ReadCall(block);
    } else if (block.type() == "thinking" && !user) {
      said_.reasoning_content += block.Text("thinking");
      block.fields().Accept("signature");
    } else if (block.type() == "redacted_thinking" && !user) {
      block.fields().Accept("data");
    } else {
      block.fields().Fail("type", user ? "must be text or tool_result"
                                       : "must be text, thinking, redacted_thinking or tool_use");
    }
  }

  void ReadCall(BlockReader& block) {
    ToolCall call;
    call.id = block.Text("id");
    call.name = block.Text("name");
    block.fields().Fail(CheckToolName(call.name, absl::StrCat(block.fields().path(), "name")));
    const boost::json::object* input = block.fields().Object("input");
    call.arguments = input == nullptr ? "{}" : boost::json::serialize(*input);
    if (call.id.size() > kToolCallIdBytesMax) {
      block.fields().Fail("id", absl::StrCat("must have at most ", kToolCallIdBytesMax, " bytes"));
    }
    said_.tool_calls.push_back(std::move(call));
  }

  // A turn of its own in front of what the user says beside it.
  void ReadResult(BlockReader& block) {
    ChatMessage result;
    result.role = "tool";
    result.tool_call_id = block.Text("tool_use_id");
    block.fields().Bool("is_error");
    if (const boost::json::value* content = block.fields().Value("content")) {
      SetContent(
          ReadTexts(*content, absl::StrCat(block.fields().path(), "content"), fields_, unknown_),
          &result);
    }
    fields_.Fail(CheckMessage(result, block.fields().path()));
    prompt_->messages.push_back(std::move(result));
    results_ = true;
  }

  void Say(const std::string& path) {
    // Results may be all that a user's message has.
    const bool only_results = std::exchange(results_, false) && texts_.empty();
    if (only_results) return;
    said_.no_content = texts_.empty();
    if (said_.no_content && said_.tool_calls.empty()) {
      fields_.Fail(path + ".content", "must have text");
      return;
    }
    SetContent(std::move(texts_), &said_);
    fields_.Fail(CheckMessage(said_, path + "."));
    prompt_->messages.push_back(std::move(said_));
  }

  FieldReader& fields_;
  ChatPrompt* const prompt_;
  std::vector<std::string>* const unknown_;
  // Of the message that is being read.
  ChatMessage said_;
  std::vector<std::string> texts_;
  bool results_ = false;
};

void ReadMessages(FieldReader& fields, ChatPrompt* prompt, std::vector<std::string>* unknown) {
  if (const boost::json::value* system = fields.Value("system")) {
    ChatMessage message;
    message.role = "system";
    SetContent(ReadTexts(*system, "system", fields, unknown), &message);
    if (!message.content.empty() || !message.content_parts.empty()) {
      prompt->messages.push_back(std::move(message));
    }
  }
  const boost::json::array* messages = fields.Array("messages");
  if (!fields.ok()) return;
  if (messages == nullptr || messages->empty() || messages->size() > kChatMessagesMax) {
    fields.Fail("messages", absl::StrCat("must hold 1 to ", kChatMessagesMax, " messages"));
    return;
  }
  MessageReader reader(fields, prompt, unknown);
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    const boost::json::object* object = (*messages)[i].if_object();
    if (object == nullptr) return fields.Fail(path, "must be an object");
    reader.Read(*object, path);
  }
  if (!fields.ok()) return;
  const bool goes_on = prompt->messages.back().role == "assistant";
  prompt->continue_final_message = goes_on;
  prompt->add_generation_prompt = !goes_on;
}

ToolChoice ReadToolChoice(FieldReader& fields, std::vector<std::string>* unknown) {
  ToolChoice choice;
  const boost::json::object* object = fields.Object("tool_choice");
  if (object == nullptr) return choice;
  FieldReader reader(*object, "tool_choice.");
  const std::string type = reader.String("type").value_or("");
  choice.parallel_calls = !reader.Bool("disable_parallel_tool_use").value_or(false);
  choice.none = type == "none";
  if (type == "any") choice.calls = PartsSpec::Calls::kRequired;
  if (type == "tool") {
    choice.calls = PartsSpec::Calls::kNamed;
    choice.named = reader.String("name").value_or("");
    reader.Fail(CheckToolName(choice.named, "tool_choice.name"));
  } else if (type != "any" && type != "auto" && type != "none") {
    reader.Fail("type", "must be auto, any, tool or none");
  }
  fields.Fail(reader.status());
  reader.AddUnknown(unknown);
  return choice;
}

}  // namespace

void ReadMessagesPrompt(FieldReader& fields, ChatPrompt* prompt, ToolChoice* choice,
                        std::vector<std::string>* unknown) {
  ReadMessages(fields, prompt, unknown);
  ToolList tools = ReadFlatTools(fields, kToolForm, unknown);
  *choice = ReadToolChoice(fields, unknown);
  OfferTools(std::move(tools), choice, prompt);
  if (fields.ok()) fields.Fail(CheckChat(*prompt, ""));
}

}  // namespace weft::router

#include "router/text/chat_values.h"

#include <boost/json.hpp>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/chat_marks.h"
#include "router/text/template_channel.h"

namespace weft::router {
namespace {

namespace json = boost::json;

absl::string_view View(json::string_view text) { return {text.data(), text.size()}; }

absl::StatusOr<json::value> Parse(absl::string_view text, absl::string_view field) {
  json::parse_options options;
  options.max_depth = kChatJsonDepthMax;
  json::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (!error) return value;
  return FieldError(field, absl::StrCat("is not valid JSON: ", error.message()));
}

template <typename Number>
std::string NumberText(Number number) {
  char buffer[32];
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof(buffer), number);
  return std::string(buffer, end.ptr);
}

class Writer {
 public:
  Writer(const TemplateTraits& traits, const UserText& user_text, std::string* out)
      : traits_(traits), user_text_(user_text), out_(*out) {}

  absl::StatusOr<size_t> Write(const ChatPrompt& prompt) {
    json::object kwargs;
    if (!prompt.template_kwargs.empty()) {
      WEFT_ASSIGN_OR_RETURN(json::value value,
                            Parse(prompt.template_kwargs, "chat_template_kwargs"));
      if (!value.is_object()) return FieldError("chat_template_kwargs", "must be an object");
      kwargs = std::move(value.as_object());
    }
    Map(4 + kwargs.size() + (prompt.reasoning_effort.empty() ? 0 : 1));
    Key("messages");
    List(prompt.messages.size());
    for (const ChatMessage& message : prompt.messages) {
      const bool open = prompt.continue_final_message && &message == &prompt.messages.back();
      WEFT_RETURN_IF_ERROR(Message(message, open));
    }
    Key("tools");
    WEFT_RETURN_IF_ERROR(JsonList(prompt.tools, "tools"));
    Key("documents");
    WEFT_RETURN_IF_ERROR(JsonList(prompt.documents, "documents"));
    Key("add_generation_prompt");
    Bool(prompt.add_generation_prompt);
    // Names of variables are checked by the doors: they are plain words.
    for (const json::key_value_pair& entry : kwargs) {
      Key(View(entry.key()));
      WEFT_RETURN_IF_ERROR(Json(entry.value()));
    }
    if (!prompt.reasoning_effort.empty()) {
      Key("reasoning_effort");
      WEFT_RETURN_IF_ERROR(Word(prompt.reasoning_effort));
    }
    return count_;
  }

 private:
  void Tag(char tag) {
    out_.push_back(tag);
    ++count_;
  }
  void Map(size_t count) {
    Tag('m');
    AppendNumber(&out_, static_cast<uint32_t>(count));
  }
  void List(size_t count) {
    Tag('l');
    AppendNumber(&out_, static_cast<uint32_t>(count));
  }
  void Bool(bool value) { Tag(value ? 't' : 'f'); }
  // The template's own.
  void Key(absl::string_view name) { AppendText(&out_, name); }
  void Text(absl::string_view text) {
    Tag('s');
    AppendText(&out_, text);
  }

  // A user's string without its letter.
  absl::Status Marked(absl::string_view text, bool open = false) {
    marked_.clear();
    if (user_text_.tokenizer != nullptr) {
      WEFT_RETURN_IF_ERROR(AppendMarked(*user_text_.tokenizer, text, &marked_));
    } else {
      marked_.assign(text.data(), text.size());
    }
    if (open) marked_.append(OpenEnd().data(), OpenEnd().size());
    AppendText(&out_, marked_);
    return absl::OkStatus();
  }
  // The same for one that may be a word of the template.
  absl::Status MarkedOrWord(absl::string_view text) {
    if (user_text_.words == nullptr || !user_text_.words->contains(text)) return Marked(text);
    AppendText(&out_, text);
    return absl::OkStatus();
  }

  absl::Status User(absl::string_view text, bool open = false) {
    Tag('s');
    return Marked(text, open);
  }
  absl::Status Word(absl::string_view text) {
    Tag('s');
    return MarkedOrWord(text);
  }

  absl::Status Message(const ChatMessage& message, bool open) {
    const bool no_content = message.no_content && !open;
    const bool has_content =
        !no_content || traits_.no_content != TemplateTraits::NoContent::kLeftOut;
    const bool reasoning = !message.reasoning_content.empty();
    Map(1 + (has_content ? 1 : 0) + (reasoning ? 2 : 0) + (message.name.empty() ? 0 : 1) +
        (message.tool_calls.empty() ? 0 : 1) + (message.tool_call_id.empty() ? 0 : 1));
    // Both of the names that templates know it by, in transformers' order.
    if (reasoning) {
      Key("thinking");
      WEFT_RETURN_IF_ERROR(User(message.reasoning_content));
    }
    Key("role");
    WEFT_RETURN_IF_ERROR(Role(message.role));
    if (has_content) {
      Key("content");
      WEFT_RETURN_IF_ERROR(no_content ? NoContent() : Content(message, open));
    }
    if (reasoning) {
      Key("reasoning_content");
      WEFT_RETURN_IF_ERROR(User(message.reasoning_content));
    }
    if (!message.name.empty()) {
      Key("name");
      WEFT_RETURN_IF_ERROR(Word(message.name));
    }
    if (!message.tool_calls.empty()) {
      Key("tool_calls");
      List(message.tool_calls.size());
      for (const ToolCall& call : message.tool_calls) WEFT_RETURN_IF_ERROR(Call(call));
    }
    if (!message.tool_call_id.empty()) {
      Key("tool_call_id");
      WEFT_RETURN_IF_ERROR(Word(message.tool_call_id));
    }
    return absl::OkStatus();
  }

  absl::Status Role(absl::string_view role) {
    if (role == "developer" && !traits_.developer_role) role = "system";
    if (!IsKnownRole(role)) return User(role);
    Text(role);
    return absl::OkStatus();
  }

  absl::Status NoContent() {
    if (traits_.no_content == TemplateTraits::NoContent::kNull) {
      Tag('n');
    } else {
      Text("");
    }
    return absl::OkStatus();
  }

  absl::Status Part(absl::string_view text, bool open) {
    Map(2);
    Key("type");
    Text("text");
    Key("text");
    return User(text, open);
  }

  absl::Status Content(const ChatMessage& message, bool open) {
    const std::vector<std::string>& parts = message.content_parts;
    if (parts.empty()) {
      if (traits_.text_content) return User(message.content, open);
      List(1);
      return Part(message.content, open);
    }
    if (!traits_.part_content) return User(absl::StrJoin(parts, "\n"), open);
    List(parts.size());
    for (const std::string& part : parts) {
      WEFT_RETURN_IF_ERROR(Part(part, open && &part == &parts.back()));
    }
    return absl::OkStatus();
  }

  absl::Status Call(const ToolCall& call) {
    Map(2 + (call.id.empty() ? 0 : 1));
    if (!call.id.empty()) {
      Key("id");
      WEFT_RETURN_IF_ERROR(Word(call.id));
    }
    Key("type");
    Text("function");
    Key("function");
    Map(2);
    Key("name");
    WEFT_RETURN_IF_ERROR(Word(call.name));
    Key("arguments");
    if (traits_.text_arguments) return User(call.arguments);
    WEFT_ASSIGN_OR_RETURN(const json::value arguments,
                          Parse(call.arguments, "tool_calls.function.arguments"));
    return Json(arguments);
  }

  absl::Status JsonList(absl::string_view text, absl::string_view field) {
    if (text.empty()) {
      Tag('n');
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const json::value list, Parse(text, field));
    if (!list.is_array()) return FieldError(field, "must be an array");
    return Json(list);
  }

  // Not deeper than kChatJsonDepthMax.
  absl::Status Json(const json::value& value) {
    switch (value.kind()) {
      case json::kind::null:
        Tag('n');
        return absl::OkStatus();
      case json::kind::bool_:
        Bool(value.get_bool());
        return absl::OkStatus();
      case json::kind::int64:
        Number('i', NumberText(value.get_int64()));
        return absl::OkStatus();
      case json::kind::uint64:
        Number('i', NumberText(value.get_uint64()));
        return absl::OkStatus();
      case json::kind::double_:
        Number('d', NumberText(value.get_double()));
        return absl::OkStatus();
      case json::kind::string:
        return Word(View(value.get_string()));
      case json::kind::array:
        List(value.get_array().size());
        for (const json::value& item : value.get_array()) WEFT_RETURN_IF_ERROR(Json(item));
        return absl::OkStatus();
      case json::kind::object:
        break;
    }
    Map(value.get_object().size());
    for (const json::key_value_pair& entry : value.get_object()) {
      WEFT_RETURN_IF_ERROR(MarkedOrWord(View(entry.key())));
      WEFT_RETURN_IF_ERROR(Json(entry.value()));
    }
    return absl::OkStatus();
  }

  void Number(char tag, absl::string_view text) {
    Tag(tag);
    AppendText(&out_, text);
  }

  const TemplateTraits& traits_;
  const UserText user_text_;
  std::string& out_;
  size_t count_ = 0;
  std::string marked_;
};

}  // namespace

absl::StatusOr<size_t> WriteVariables(const ChatPrompt& prompt, const TemplateTraits& traits,
                                      const UserText& user_text, std::string* out) {
  return Writer(traits, user_text, out).Write(prompt);
}

}  // namespace weft::router

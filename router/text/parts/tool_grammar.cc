#include "router/text/parts/tool_grammar.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "router/text/parts/formats.h"
#include "router/text/parts/grammar_schema.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

namespace json = boost::json;
using Choice = ToolGrammarOptions::Choice;

constexpr absl::string_view kAnyText = "/(?s:.*)/";

std::string Serialized(const json::value& value) { return json::serialize(value); }

// Text as an element of a rule; nothing of no text.
std::string Quoted(absl::string_view text) {
  if (text.empty()) return {};
  std::string out = "\"";
  AppendJsonBytes(text, &out);
  out.push_back('"');
  return out;
}

// Elements of a rule in a row.
template <typename... Elements>
std::string Row(const Elements&... elements) {
  std::string row;
  for (const std::string& element : {std::string(elements)...}) {
    if (!row.empty() && !element.empty()) row.push_back(' ');
    row.append(element);
  }
  return row;
}

// A frame: open, after_open, call, (between, call)*, after. All but `open`, a mark, are elements.
struct Frame {
  absl::string_view open;
  std::string after_open;
  std::string between;
  std::string after;
};

class GrammarWriter {
 public:
  GrammarWriter(const ToolFormat& format, const ToolGrammarOptions& options)
      : format_(format), options_(options) {}

  std::string Write(const std::vector<GrammarTool>& tools) {
    Frame frame = FrameOf();
    std::vector<std::string> calls;
    for (size_t i = 0; i < tools.size(); ++i) {
      calls.push_back(absl::StrCat("call_", i));
      Rule(calls.back(), CallOf(tools[i], i));
    }
    const bool several = options_.parallel_calls && options_.choice != Choice::kNamed &&
                         format_.family != ToolFormat::Family::kHarmony;
    Rule("call", absl::StrJoin(calls, " | "));
    Rule("calls",
         Row(frame.after_open, "call",
             several ? absl::StrCat("(", Row(frame.between, "call"), ")*") : "", frame.after));
    return absl::StrCat(StartOf(frame), rules_);
  }

 private:
  void Rule(absl::string_view name, absl::string_view body) {
    absl::StrAppend(&rules_, name, ": ", body, "\n");
  }

  std::optional<uint32_t> Token(absl::string_view mark) const {
    if (!options_.control_token || mark.empty()) return std::nullopt;
    return options_.control_token(mark);
  }
  std::string Mark(absl::string_view mark) const {
    const std::optional<uint32_t> token = Token(mark);
    return token.has_value() ? absl::StrCat("<[", *token, "]>") : Quoted(mark);
  }

  std::string StartOf(const Frame& frame) const {
    if (format_.family == ToolFormat::Family::kHarmony) return HarmonyStart();
    const std::string all = Row(Mark(frame.open), "calls");
    if (options_.choice != Choice::kAuto) return absl::StrCat("start: ", all, "\n");
    if (!options_.content_schema.empty()) {
      return absl::StrCat("start: content | ", all, "\ncontent: ", ContentSchema(), "\n");
    }
    // Control tokens are no text, so that a token tells the call from it.
    if (Token(frame.open).has_value()) {
      return absl::StrCat("start: TEXT | TEXT ", all, "\nTEXT: ", kAnyText, "\n");
    }
    if (!frame.open.empty()) {
      return absl::StrCat("start: TEXT | head calls\nhead[lazy]: TEXT ", Quoted(frame.open),
                          "\nTEXT: ", kAnyText, "\n");
    }
    // Whatever begins as a call does is one.
    return absl::StrCat("start: TEXT? | calls\nTEXT: /[^{\\[](?s:.*)/\n");
  }

  // Reasoning is a message like others; only final and calls are told apart by the choice.
  std::string HarmonyStart() const {
    const std::string call = Row("analysis", "calls");
    std::string start = absl::StrCat("start: ", call);
    if (options_.choice == Choice::kAuto) absl::StrAppend(&start, " | analysis final | final");
    absl::StrAppend(&start, " | calls\n");
    absl::StrAppend(&start, "analysis: ",
                    Row(Mark("<|channel|>"), "\"analysis\"", Mark("<|message|>"), "body_end",
                        Mark("<|start|>"), "\"assistant\""),
                    "\n");
    if (options_.choice == Choice::kAuto) {
      absl::StrAppend(&start, "final: ",
                      Row(Mark("<|channel|>"), "\"final\"", Mark("<|message|>"),
                          options_.content_schema.empty() ? "TEXT" : ContentSchema()),
                      "\n");
    }
    const std::string end = Token("<|end|>").has_value()
                                ? absl::StrCat("body_end: TEXT ", Mark("<|end|>"), "\n")
                                : absl::StrCat("body_end[lazy]: TEXT \"<|end|>\"\n");
    return absl::StrCat(start, end, "TEXT: ", kAnyText, "\n");
  }

  std::string ContentSchema() const { return absl::StrCat("%json ", options_.content_schema); }

  Frame FrameOf() const;
  std::string CallOf(const GrammarTool& tool, size_t index);
  std::string ObjectCall(const GrammarTool& tool, size_t index, absl::string_view key);
  std::string TagCall(const GrammarTool& tool, size_t index);
  std::string PythonCall(const GrammarTool& tool, size_t index);
  // The rule of a tool's arguments as JSON.
  std::string Arguments(const GrammarTool& tool, size_t index) {
    const std::string name = absl::StrCat("arguments_", index);
    Rule(name, absl::StrCat("%json ", Serialized(tool.schema)));
    return name;
  }
  // A parameter's value with what ends it.
  std::string TagValue(const json::object& schema, const std::string& rule,
                       absl::string_view close);
  bool NewMistral() const { return Token("[ARGS]").has_value(); }

  const ToolFormat& format_;
  const ToolGrammarOptions& options_;
  std::string rules_;
};

Frame GrammarWriter::FrameOf() const {
  const absl::string_view name = format_.name;
  if (name == "hermes" || name == "qwen3_coder") {
    const std::string again = Row("\"\\n\"", Mark("<tool_call>"), "\"\\n\"");
    return {"<tool_call>", "\"\\n\"", again, ""};
  }
  if (name == "glm45") return {"<tool_call>", "", Row("\"\\n\"", Mark("<tool_call>")), ""};
  if (name == "llama3_json") return {"", "", "\"; \"", ""};
  if (name == "granite") return {"<|tool_call|>", "\"[\"", "\", \"", "\"]\""};
  if (name == "phi4_mini") {
    return {"<|tool_call|>", "\"[\"", "\", \"", Row("\"]\"", Mark("<|/tool_call|>"))};
  }
  if (name == "mistral") {
    if (NewMistral()) return {"[TOOL_CALLS]", "", Mark("[TOOL_CALLS]"), ""};
    return {"[TOOL_CALLS]", "\" [\"", "\", \"", "\"]\""};
  }
  if (name == "deepseek_v3") {
    return {"<｜tool▁calls▁begin｜>", "", "\"\\n\"", Mark("<｜tool▁calls▁end｜>")};
  }
  if (name == "deepseek_v31") {
    return {"<｜tool▁calls▁begin｜>", "", "", Mark("<｜tool▁calls▁end｜>")};
  }
  if (name == "deepseek_v32") {
    return {"<｜DSML｜function_calls>", "\"\\n\"", "", Mark("</｜DSML｜function_calls>")};
  }
  if (name == "minimax_m2") {
    return {"<minimax:tool_call>", "\"\\n\"", "", Mark("</minimax:tool_call>")};
  }
  if (name == "kimi_k2") {
    return {"<|tool_calls_section_begin|>", "", "", Mark("<|tool_calls_section_end|>")};
  }
  if (format_.family == ToolFormat::Family::kHarmony) return {"", "", "", ""};
  // json, llama4_pythonic, pythonic
  return {"", "\"[\"", "\", \"", "\"]\""};
}

std::string GrammarWriter::CallOf(const GrammarTool& tool, size_t index) {
  const absl::string_view format = format_.name;
  switch (format_.family) {
    case ToolFormat::Family::kTags:
      return TagCall(tool, index);
    case ToolFormat::Family::kPythonic:
      return PythonCall(tool, index);
    case ToolFormat::Family::kJson: {
      const std::string object =
          ObjectCall(tool, index, format == "llama3_json" ? "parameters" : "arguments");
      return format == "hermes" ? Row(object, "\"\\n\"", Mark("</tool_call>")) : object;
    }
    case ToolFormat::Family::kMistral:
      if (!NewMistral()) return ObjectCall(tool, index, "arguments");
      return Row(Quoted(tool.name), Mark("[ARGS]"), Arguments(tool, index));
    case ToolFormat::Family::kKimi:
      return Row(Mark("<|tool_call_begin|>"), Quoted(absl::StrCat("functions.", tool.name, ":")),
                 "/[0-9]{1,3}/", Mark("<|tool_call_argument_begin|>"), Arguments(tool, index),
                 Mark("<|tool_call_end|>"));
    case ToolFormat::Family::kDeepSeek: {
      const std::string begin = Mark("<｜tool▁call▁begin｜>");
      const std::string separator = Mark("<｜tool▁sep｜>");
      const std::string end = Mark("<｜tool▁call▁end｜>");
      if (format == "deepseek_v31") {
        return Row(begin, Quoted(tool.name), separator, Arguments(tool, index), end);
      }
      return Row(begin, "\"function\"", separator, Quoted(absl::StrCat(tool.name, "\n```json\n")),
                 Arguments(tool, index), "\"\\n```\"", end);
    }
    case ToolFormat::Family::kHarmony:
      return Row(Mark("<|channel|>"),
                 Quoted(absl::StrCat("commentary to=functions.", tool.name, " ")),
                 Mark("<|constrain|>"), "\"json\"", Mark("<|message|>"), Arguments(tool, index),
                 // A token that ends the answer is not part of it.
                 Token("<|call|>").has_value() ? "" : "\"<|call|>\"?");
  }
  return {};
}

std::string GrammarWriter::ObjectCall(const GrammarTool& tool, size_t index,
                                      absl::string_view key) {
  std::string head = "{\"name\": \"";
  AppendJsonBytes(tool.name, &head);
  absl::StrAppend(&head, "\", \"", key, "\": ");
  return Row(Quoted(head), Arguments(tool, index), "\"}\"");
}

std::string GrammarWriter::TagValue(const json::object& schema, const std::string& rule,
                                    absl::string_view close) {
  const json::value* const values = schema.if_contains("enum");
  if (TypesOf(schema) != kJsonString) {
    Rule(rule, absl::StrCat("%json ", Serialized(schema)));
    return Row(rule, Mark(close));
  }
  if (values != nullptr && values->is_array()) {
    std::vector<std::string> texts;
    for (const json::value& value : values->get_array()) {
      if (value.is_string()) {
        texts.push_back(Quoted({value.get_string().data(), value.get_string().size()}));
      }
    }
    Rule(rule, absl::StrJoin(texts, " | "));
    return Row(rule, Mark(close));
  }
  if (Token(close).has_value()) return Row(kAnyText, Mark(close));
  Rule(absl::StrCat(rule, "[lazy]"), Row(kAnyText, Quoted(close)));
  return rule;
}

std::string GrammarWriter::TagCall(const GrammarTool& tool, size_t index) {
  const TagForm& form = *format_.tags;
  const bool glm = format_.name == "glm45";
  std::string call;
  if (glm) {
    call = Quoted(absl::StrCat(tool.name, "\n"));
  } else {
    // Of Qwen3-Coder the name stands in the tag itself, of the others in its attribute.
    call = Quoted(absl::StrCat(form.call_open, tool.name, form.name_stops.substr(0, 1),
                               form.name_tail, "\n"));
  }
  size_t count = 0;
  for (const GrammarParameter& parameter : ParametersOf(tool)) {
    const std::string rule = absl::StrCat("value_", index, "_", count++);
    const absl::string_view line = form.lines ? "\n" : "";
    std::string head;
    if (glm) {
      head = Row(Mark("<arg_key>"), Quoted(parameter.name), Mark("</arg_key>"), "\"\\n\"",
                 Mark("<arg_value>"));
    } else if (format_.name == "deepseek_v32") {
      head =
          Quoted(absl::StrCat(form.parameter_open, parameter.name, "\" string=\"",
                              TypesOf(parameter.schema) == kJsonString ? "true" : "false", "\">"));
    } else {
      head = Quoted(
          absl::StrCat(form.parameter_open, parameter.name, form.attributes ? "\">" : ">", line));
    }
    const std::string one = Row(
        head,
        TagValue(parameter.schema, rule,
                 glm ? form.value_close : absl::string_view(absl::StrCat(line, form.value_close))),
        "\"\\n\"");
    call = Row(call, parameter.required ? one : absl::StrCat("(", one, ")?"));
  }
  call = Row(call, glm ? Mark(form.call_close) : Quoted(absl::StrCat(form.call_close, "\n")));
  return format_.name == "qwen3_coder" ? Row(call, Mark("</tool_call>")) : call;
}

std::string GrammarWriter::PythonCall(const GrammarTool& tool, size_t index) {
  // Required arguments come first, so that commas are told easily.
  std::string call = Quoted(absl::StrCat(tool.name, "("));
  std::string required;
  std::string optional;
  size_t count = 0;
  for (const GrammarParameter& parameter : ParametersOf(tool)) {
    const std::string rule = absl::StrCat("value_", index, "_", count++);
    // JSON reads as Python but for its words.
    const bool boolean = TypesOf(parameter.schema) == kJsonBoolean;
    Rule(rule,
         boolean ? "\"True\" | \"False\"" : absl::StrCat("%json ", Serialized(parameter.schema)));
    const std::string one = Row(Quoted(absl::StrCat(parameter.name, "=")), rule);
    if (parameter.required) {
      required = required.empty() ? one : Row(required, "\", \"", one);
    } else {
      optional = Row(optional, absl::StrCat("(", Row("\", \"", one), ")?"));
    }
  }
  if (required.empty() && !optional.empty()) {
    // None is required: any one of them may be the first.
    optional.clear();
    std::vector<std::string> first;
    for (size_t i = 0; i < count; ++i) {
      std::string row;
      size_t j = 0;
      for (const GrammarParameter& parameter : ParametersOf(tool)) {
        const std::string one =
            Row(Quoted(absl::StrCat(parameter.name, "=")), absl::StrCat("value_", index, "_", j));
        if (j == i) row = one;
        if (j > i) row = Row(row, absl::StrCat("(", Row("\", \"", one), ")?"));
        ++j;
      }
      first.push_back(row);
    }
    required = absl::StrCat("(", absl::StrJoin(first, " | "), ")?");
  }
  return Row(call, required, optional, "\")\"");
}

}  // namespace

absl::StatusOr<std::string> ToolGrammar(absl::string_view tool_parser,
                                        const std::vector<ToolSpec>& tools,
                                        const ToolGrammarOptions& options) {
  const ToolFormat* const format = FindToolFormat(tool_parser);
  if (format == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no tool parser is named \"", tool_parser, "\""));
  }
  const std::string any_object = "{}";
  std::vector<GrammarTool> chosen;
  for (const ToolSpec& tool : tools) {
    if (options.choice == Choice::kNamed && tool.name != options.name) continue;
    GrammarTool one;
    one.name = tool.name;
    json::error_code error;
    const std::string& text = tool.parameters.empty() ? any_object : tool.parameters;
    one.schema = json::parse(text, error);
    if (error || !one.schema.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the parameters of the tool \"", tool.name, "\" are no JSON Schema object"));
    }
    // Arguments are an object, whatever else the schema says of them.
    if (!one.schema.get_object().contains("type")) one.schema.get_object()["type"] = "object";
    chosen.push_back(std::move(one));
  }
  if (chosen.empty()) {
    return absl::InvalidArgumentError(
        options.choice == Choice::kNamed
            ? absl::StrCat("there is no tool named \"", options.name, "\"")
            : "a call is required, and there are no tools");
  }
  return GrammarWriter(*format, options).Write(chosen);
}

}  // namespace weft::router

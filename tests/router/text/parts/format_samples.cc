#include "tests/router/text/parts/format_samples.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"

namespace weft::router {
namespace {

namespace json = boost::json;

std::string Text(const json::value& value) {
  if (value.is_string()) return {value.get_string().data(), value.get_string().size()};
  return json::serialize(value);
}

std::string Object(const SampleCall& call, absl::string_view key) {
  return absl::StrCat("{\"name\": \"", call.name, "\", \"", key,
                      "\": ", json::serialize(call.arguments), "}");
}

std::string Objects(const std::vector<SampleCall>& calls, absl::string_view key,
                    absl::string_view between) {
  std::string text;
  for (const SampleCall& call : calls) {
    absl::StrAppend(&text, text.empty() ? "" : between, Object(call, key));
  }
  return text;
}

std::string PythonLiteral(const json::value& value) {
  if (value.is_bool()) return value.get_bool() ? "True" : "False";
  if (value.is_null()) return "None";
  if (value.is_string()) {
    std::string out = "'";
    for (const char c : value.get_string()) {
      if (c == '\n') {
        out.append("\\n");
        continue;
      }
      if (c == '\'' || c == '\\') out.push_back('\\');
      out.push_back(c);
    }
    return out + "'";
  }
  if (value.is_array()) {
    std::string out = "[";
    for (const json::value& one : value.get_array()) {
      absl::StrAppend(&out, out.size() > 1 ? ", " : "", PythonLiteral(one));
    }
    return out + "]";
  }
  if (value.is_object()) {
    std::string out = "{";
    for (const json::key_value_pair& one : value.get_object()) {
      absl::StrAppend(&out, out.size() > 1 ? ", " : "", PythonLiteral(json::value(one.key())), ": ",
                      PythonLiteral(one.value()));
    }
    return out + "}";
  }
  return json::serialize(value);
}

std::string PythonCalls(const std::vector<SampleCall>& calls) {
  std::string text = "[";
  for (const SampleCall& call : calls) {
    absl::StrAppend(&text, text.size() > 1 ? ", " : "", call.name, "(");
    bool first = true;
    for (const json::key_value_pair& one : call.arguments) {
      absl::StrAppend(&text, first ? "" : ", ", std::string(one.key()), "=",
                      PythonLiteral(one.value()));
      first = false;
    }
    text += ")";
  }
  return text + "]";
}

// Arguments one by one: before the key, behind it (of strings, of others), behind the value.
std::string Tagged(const SampleCall& call, absl::string_view open, absl::string_view behind_string,
                   absl::string_view behind_other, absl::string_view close) {
  std::string text;
  for (const json::key_value_pair& one : call.arguments) {
    absl::StrAppend(&text, open, std::string(one.key()),
                    one.value().is_string() ? behind_string : behind_other, Text(one.value()),
                    close);
  }
  return text;
}

std::string Harmony(const std::vector<SampleCall>& calls) {
  std::string text;
  for (const SampleCall& call : calls) {
    absl::StrAppend(&text, text.empty() ? "" : "<|start|>assistant",
                    "<|channel|>commentary to=functions.", call.name,
                    " <|constrain|>json<|message|>", json::serialize(call.arguments), "<|call|>");
  }
  return text;
}

std::string InFrame(absl::string_view format, const SampleCall& call, size_t index) {
  const std::string arguments = json::serialize(call.arguments);
  if (format == "hermes") {
    return absl::StrCat("<tool_call>\n", Object(call, "arguments"), "\n</tool_call>");
  }
  if (format == "qwen3_coder") {
    return absl::StrCat("<tool_call>\n<function=", call.name, ">\n",
                        Tagged(call, "<parameter=", ">\n", ">\n", "\n</parameter>\n"),
                        "</function>\n</tool_call>");
  }
  if (format == "glm45") {
    return absl::StrCat("<tool_call>", call.name, "\n",
                        Tagged(call, "<arg_key>", "</arg_key>\n<arg_value>",
                               "</arg_key>\n<arg_value>", "</arg_value>\n"),
                        "</tool_call>");
  }
  if (format == "minimax_m2") {
    return absl::StrCat("<invoke name=\"", call.name, "\">\n",
                        Tagged(call, "<parameter name=\"", "\">", "\">", "</parameter>\n"),
                        "</invoke>\n");
  }
  if (format == "deepseek_v32") {
    return absl::StrCat("<｜DSML｜invoke name=\"", call.name, "\">\n",
                        Tagged(call, "<｜DSML｜parameter name=\"", "\" string=\"true\">",
                               "\" string=\"false\">", "</｜DSML｜parameter>\n"),
                        "</｜DSML｜invoke>\n");
  }
  if (format == "deepseek_v3") {
    return absl::StrCat("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", call.name, "\n```json\n",
                        arguments, "\n```<｜tool▁call▁end｜>");
  }
  if (format == "deepseek_v31") {
    return absl::StrCat("<｜tool▁call▁begin｜>", call.name, "<｜tool▁sep｜>", arguments,
                        "<｜tool▁call▁end｜>");
  }
  if (format == "kimi_k2") {
    return absl::StrCat("<|tool_call_begin|>functions.", call.name, ":", index,
                        "<|tool_call_argument_begin|>", arguments, "<|tool_call_end|>");
  }
  return absl::StrCat("[TOOL_CALLS]", call.name, "[ARGS]", arguments);  // mistral
}

}  // namespace

std::string WriteCalls(absl::string_view format, const std::vector<SampleCall>& calls) {
  if (format == "llama3_json") return Objects(calls, "parameters", "; ");
  if (format == "granite") {
    return absl::StrCat("<|tool_call|>[", Objects(calls, "arguments", ", "), "]");
  }
  if (format == "phi4_mini") {
    return absl::StrCat("<|tool_call|>[", Objects(calls, "arguments", ", "), "]<|/tool_call|>");
  }
  if (format == "json") return absl::StrCat("[", Objects(calls, "arguments", ", "), "]");
  if (absl::EndsWith(format, "pythonic")) return PythonCalls(calls);
  if (format == "harmony") return Harmony(calls);
  std::string text = OpeningOf(format);
  const bool frame =
      format == "minimax_m2" || absl::StartsWith(format, "deepseek") || format == "kimi_k2";
  if (!frame) text.clear();
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool line = i > 0 && (format == "hermes" || format == "qwen3_coder" ||
                                format == "glm45" || format == "deepseek_v3");
    absl::StrAppend(&text, line ? "\n" : "", InFrame(format, calls[i], i));
  }
  if (format == "minimax_m2") text += "</minimax:tool_call>";
  if (format == "deepseek_v32") text += "</｜DSML｜function_calls>";
  if (format == "deepseek_v3" || format == "deepseek_v31") text += "<｜tool▁calls▁end｜>";
  if (format == "kimi_k2") text += "<|tool_calls_section_end|>";
  return text;
}

std::string OpeningOf(absl::string_view format) {
  if (format == "llama3_json") return "{";
  if (format == "json") return "[{";
  if (absl::EndsWith(format, "pythonic")) return "[";
  if (format == "granite" || format == "phi4_mini") return "<|tool_call|>";
  if (format == "mistral") return "[TOOL_CALLS]";
  if (format == "minimax_m2") return "<minimax:tool_call>\n";
  if (format == "deepseek_v32") return "<｜DSML｜function_calls>\n";
  if (format == "deepseek_v3" || format == "deepseek_v31") return "<｜tool▁calls▁begin｜>";
  if (format == "kimi_k2") return "<|tool_calls_section_begin|>";
  if (format == "harmony") return "<|channel|>commentary";
  return "<tool_call>";  // hermes, qwen3_coder, glm45
}

bool MayFollowText(absl::string_view format) {
  return format != "json" && format != "llama3_json" && !absl::EndsWith(format, "pythonic") &&
         format != "harmony";
}

}  // namespace weft::router

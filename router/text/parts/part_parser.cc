#include "router/text/parts/part_parser.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "router/text/parts/answer_parser.h"
#include "router/text/parts/formats.h"
#include "router/text/parts/harmony_parser.h"

namespace weft::router {
namespace {

absl::Status UnknownName(absl::string_view what, absl::string_view name,
                         const std::vector<absl::string_view>& known) {
  return absl::InvalidArgumentError(absl::StrCat("no ", what, " parser is named \"", name,
                                                 "\" (known: ", absl::StrJoin(known, ", "), ", ",
                                                 kNoParser, ")"));
}

const ToolSet& AnyTool() {
  static const ToolSet& any = *new ToolSet();
  return any;
}

// What a template has to hold for a format, all of it. The first row that fits counts.
struct TemplateMarks {
  absl::string_view parser;
  absl::string_view marks[2];
};

constexpr TemplateMarks kToolMarks[] = {
    {"harmony", {"<|channel|>", "<|message|>"}},
    {"deepseek_v32", {"｜DSML｜", "invoke"}},
    {"deepseek_v3", {"<｜tool▁calls▁begin｜>", "```json"}},
    {"deepseek_v31", {"<｜tool▁calls▁begin｜>", ""}},
    {"kimi_k2", {"<|tool_call_argument_begin|>", ""}},
    {"minimax_m2", {"<minimax:tool_call>", ""}},
    {"minimax_m2", {"minimax:tool_call", "<invoke name="}},
    {"glm45", {"<arg_key>", "<arg_value>"}},
    {"qwen3_coder", {"<function=", "<parameter="}},
    {"mistral", {"[TOOL_CALLS]", ""}},
    {"phi4_mini", {"<|tool|>", "<|/tool|>"}},
    {"granite", {"<|start_of_role|>", "<|tool_call|>"}},
    {"hermes", {"<tool_call>", ""}},
    {"llama4_pythonic", {"<|header_start|>", "tools"}},
    {"llama4_pythonic", {"<|python_start|>", ""}},
    {"pythonic", {"[func_name1(params_name1=params_value1", ""}},
    {"llama3_json", {"<|start_header_id|>", "\"parameters\":"}},
    {"llama3_json", {"<|python_tag|>", ""}},
    {"json", {"tools", ""}},
};

constexpr TemplateMarks kReasoningMarks[] = {
    {"harmony", {"<|channel|>", "<|message|>"}},
    {"mistral", {"[THINK]", ""}},
    {"granite", {"Here is my thought process", ""}},
    {"think", {"</think>", ""}},
    {"think", {"<think>", ""}},
};

template <size_t kRows>
absl::string_view Detect(absl::string_view source, const TemplateMarks (&rows)[kRows]) {
  for (const TemplateMarks& row : rows) {
    if (absl::StrContains(source, row.marks[0]) && absl::StrContains(source, row.marks[1])) {
      return row.parser;
    }
  }
  return kNoParser;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PartParser>> MakePartParser(const PartParserOptions& options) {
  const ToolFormat* const format = FindToolFormat(options.tool_parser);
  const ReasoningFormat* const reasoning = FindReasoningFormat(options.reasoning_parser);
  if (format == nullptr && options.tool_parser != kNoParser) {
    return UnknownName("tool", options.tool_parser, ToolParserNames());
  }
  if (reasoning == nullptr && options.reasoning_parser != kNoParser) {
    return UnknownName("reasoning", options.reasoning_parser, ReasoningParserNames());
  }
  const ToolSet* const tools = options.tools == nullptr ? &AnyTool() : options.tools;
  const bool harmony_tools = options.tool_parser == kHarmony;
  const bool harmony_reasoning = options.reasoning_parser == kHarmony;
  if (!harmony_tools && !harmony_reasoning) {
    return std::make_unique<AnswerParser>(format, reasoning, tools, options.parallel_calls,
                                          options.reasoning_open);
  }
  if ((format != nullptr && !harmony_tools) || (reasoning != nullptr && !harmony_reasoning)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the parsers \"", options.tool_parser, "\" for tools and \"", options.reasoning_parser,
        "\" for reasoning do not go together: ", kHarmony, " is both"));
  }
  return std::make_unique<HarmonyParser>(tools, harmony_tools, options.parallel_calls,
                                         options.reasoning_open);
}

std::vector<absl::string_view> ToolParserNames() {
  std::vector<absl::string_view> names;
  for (const ToolFormat& format : ToolFormats()) names.push_back(format.name);
  return names;
}

std::vector<absl::string_view> ReasoningParserNames() {
  std::vector<absl::string_view> names;
  for (const ReasoningFormat& format : ReasoningFormats()) names.push_back(format.name);
  return names;
}

DetectedParsers DetectParsers(absl::string_view template_source) {
  return {Detect(template_source, kToolMarks), Detect(template_source, kReasoningMarks)};
}

bool PromptOpensReasoning(absl::string_view reasoning_parser, absl::string_view prompt) {
  prompt = absl::StripTrailingAsciiWhitespace(prompt);
  if (reasoning_parser == kHarmony) {
    return absl::EndsWith(prompt, "<|channel|>analysis<|message|>");
  }
  const ReasoningFormat* const format = FindReasoningFormat(reasoning_parser);
  if (format == nullptr) return false;
  for (const absl::string_view open : format->opens) {
    if (absl::EndsWith(prompt, open)) return true;
  }
  return false;
}

}  // namespace weft::router

// What chat templates tell of their formats. The texts are parts as published templates have them,
// not the templates.

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "router/text/parts/formats.h"
#include "tests/router/text/parts/parse.h"

namespace weft::router {

TEST_CASE("Templates show their formats", "[parts]") {
  struct Row {
    std::string source;
    std::string tool_parser;
    std::string reasoning_parser;
  };
  const std::vector<Row> rows = {
      {"{% if tools %}<tools></tools> within <tool_call></tool_call>{% endif %}<|im_start|>",
       "hermes", "none"},
      {"{% if tools %}<tool_call>{% endif %}{{ '<think>\\n\\n</think>\\n\\n' }}", "hermes",
       "think"},
      {"tools <tool_call>\\n<function=example>\\n<parameter=p>", "qwen3_coder", "none"},
      {"<tool_call>{name}<arg_key>{k}</arg_key><arg_value>{v}</arg_value></tool_call><think></"
       "think>",
       "glm45", "think"},
      {"<|start_header_id|> tools {\"name\": function name, \"parameters\": dictionary}",
       "llama3_json", "none"},
      {"<|start_header_id|>{{ message.role }}<|end_header_id|>", "none", "none"},
      {"<|header_start|>{% if tools %}", "llama4_pythonic", "none"},
      {"tools: [func_name1(params_name1=params_value1, ...)]", "pythonic", "none"},
      {"[AVAILABLE_TOOLS][TOOL_CALLS]", "mistral", "none"},
      {"[SYSTEM_PROMPT][TOOL_CALLS][ARGS][THINK][/THINK]", "mistral", "mistral"},
      {"<|start|>assistant<|channel|>final<|message|>", "harmony", "harmony"},
      {"<｜tool▁calls▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + '```json' </think>",
       "deepseek_v3", "think"},
      {"<｜tool▁calls▁begin｜><｜tool▁sep｜></think>", "deepseek_v31", "think"},
      {"<｜DSML｜function_calls><｜DSML｜invoke name=", "deepseek_v32", "none"},
      {"<|tool_calls_section_begin|><|tool_call_argument_begin|>", "kimi_k2", "none"},
      {"<minimax:tool_call><invoke name=", "minimax_m2", "none"},
      {"<|tool|>{{ tools }}<|/tool|><|assistant|>", "phi4_mini", "none"},
      {"<|start_of_role|> tools <|tool_call|> Here is my thought process:", "granite", "granite"},
      {"<|start_of_role|> tools <tool_call>", "hermes", "none"},
      {"{% for tool in tools %}{{ tool }}{% endfor %}", "json", "none"},
      {"{{ messages[0].content }}", "none", "none"},
      {"", "none", "none"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.source);
    const DetectedParsers detected = DetectParsers(row.source);
    CHECK(detected.tool_parser == row.tool_parser);
    CHECK(detected.reasoning_parser == row.reasoning_parser);
    PartParserOptions options;
    options.tool_parser = std::string(detected.tool_parser);
    options.reasoning_parser = std::string(detected.reasoning_parser);
    CHECK(MakePartParser(options).ok());
  }
}

TEST_CASE("A prompt may end inside of reasoning", "[parts]") {
  CHECK(PromptOpensReasoning("think", "<|im_start|>assistant\n<think>\n"));
  CHECK_FALSE(PromptOpensReasoning("think", "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  CHECK_FALSE(PromptOpensReasoning("think", "<|im_start|>assistant\n"));
  CHECK(PromptOpensReasoning("mistral", "[/INST][THINK]"));
  CHECK(PromptOpensReasoning("harmony", "<|start|>assistant<|channel|>analysis<|message|>"));
  CHECK_FALSE(PromptOpensReasoning("harmony", "<|start|>assistant"));
  CHECK_FALSE(PromptOpensReasoning("none", "<think>"));
  CHECK_FALSE(PromptOpensReasoning("think", ""));
}

TEST_CASE("An unknown parser is refused with those that are known", "[parts]") {
  const auto tool = MakePartParser(ToolOptions("hermit"));
  CHECK(tool.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(std::string(tool.status().message()), "hermes"));
  const auto reasoning = MakePartParser(ToolOptions("none", "thunk"));
  CHECK(reasoning.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(std::string(reasoning.status().message()), "think"));
}

TEST_CASE("No mark of a format begins another", "[parts]") {
  for (const ToolFormat& format : ToolFormats()) {
    for (const ToolMark& mark : format.marks) {
      for (const ToolMark& other : format.marks) {
        // Those of the beginning are never looked for together with those that close.
        if (mark.use == ToolMark::Use::kOpenFirst || other.use == ToolMark::Use::kOpenFirst)
          continue;
        CAPTURE(std::string(mark.text), std::string(other.text));
        CHECK((&mark == &other || !absl::StartsWith(mark.text, other.text)));
      }
    }
  }
}

TEST_CASE("Names of parsers are in order", "[parts]") {
  for (const auto& names : {ToolParserNames(), ReasoningParserNames()}) {
    CHECK(std::is_sorted(names.begin(), names.end()));
    CHECK(names.size() >= 4);
  }
}

}  // namespace weft::router

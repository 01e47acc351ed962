// Formats that name the tool in a header of control tokens.

#include <catch2/catch.hpp>

#include "tests/router/text/parts/parse.h"

namespace weft::router {

TEST_CASE("Mistral", "[parts]") {
  CheckCases(
      ToolOptions("mistral"),
      {
          {"old", R"([TOOL_CALLS] [{"name": "now", "arguments": {}}])", "now({})"},
          {"old with ids",
           R"([TOOL_CALLS][{"name": "now", "arguments": {}, "id": "9Ae3bDc2F"}, )"
           R"({"name": "search", "arguments": {"query": "a"}, "id": "x"}])",
           "now({})\nsearch({\"query\": \"a\"})"},
          {"old without a list", R"([TOOL_CALLS]{"name": "now"})", "now({})"},
          {"new", R"([TOOL_CALLS]search[ARGS]{"query": "a"})", R"(search({"query": "a"}))"},
          {"new with an id", R"([TOOL_CALLS]now[CALL_ID]9Ae3bDc2F[ARGS]{})", "now({})"},
          {"new without its token", R"([TOOL_CALLS]search{"query": "a"})",
           R"(search({"query": "a"}))"},
          {"several", R"([TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]search[ARGS]{"query": "b"})",
           "now({})\nsearch({\"query\": \"b\"})"},
          {"text in front and behind", R"(One moment. [TOOL_CALLS]now[ARGS]{} Thanks.)",
           "content(One moment.)\nnow({})\ncontent( Thanks.)"},
          {"a list in text", "[TOOL] [1, 2] [TOOL_CALL]", "content([TOOL] [1, 2] [TOOL_CALL])"},
          {"arguments that are none", "[TOOL_CALLS]now[ARGS]x", "now()\ncontent(x)"},
          {"no arguments", "[TOOL_CALLS]now[ARGS]", "now()"},
          {"a name alone", "[TOOL_CALLS]now", "content([TOOL_CALLS]now)"},
          {"two ids", "[TOOL_CALLS]now[CALL_ID]1[CALL_ID]2[ARGS]{}", "now({})"},
          {"a mark in the name", "[TOOL_CALLS]x[TOOL_CALLS]now[ARGS]{}",
           "content([TOOL_CALLS]x)\nnow({})"},
      });
}

TEST_CASE("DeepSeek V3 and V3.1", "[parts]") {
  const std::vector<PartCase> cases = {
      {"V3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
       "{\"query\": \"a\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       R"(search({"query": "a"}))"},
      {"V3, several",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "now({})\nnow({})"},
      {"V3.1",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"query\": \"a\"}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       R"(search({"query": "a"}))"},
      {"no frame", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "now({})"},
      {"text around",
       "Wait.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>\nDone.",
       "content(Wait.)\nnow({})\ncontent(\nDone.)"},
      {"no end", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}", "now({})"},
      {"no call in the frame", "<｜tool▁calls▁begin｜>now", "content(<｜tool▁calls▁begin｜>now)"},
      {"no separator", "<｜tool▁call▁begin｜>now{}", "content(<｜tool▁call▁begin｜>now{})"},
      {"other brackets", "<|tool▁calls▁begin|>", "content(<|tool▁calls▁begin|>)"},
      {"half a mark", "a <｜tool▁call", "content(a <｜tool▁call)"},
      {"no arguments", "<｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜>", "now()"},
      {"a mark again", "<｜tool▁call▁begin｜>x<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}",
       "content(<｜tool▁call▁begin｜>x)\nnow({})"},
  };
  CheckCases(ToolOptions("deepseek_v3"), cases);
  CheckCases(ToolOptions("deepseek_v31"), cases);
  const ToolSet tools(std::vector<ToolSpec>{{"function", ""}});
  PartParserOptions options = ToolOptions("deepseek_v31");
  options.tools = &tools;
  CheckCases(options,
             {{"a tool named function", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{\"a\":1}",
               R"(function({"a":1}))"}});
}

TEST_CASE("Kimi K2", "[parts]") {
  CheckCases(
      ToolOptions("kimi_k2"),
      {
          {"call",
           "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0"
           "<|tool_call_argument_begin|>{\"query\": \"a\"}<|tool_call_end|>"
           "<|tool_calls_section_end|>",
           R"(search({"query": "a"}))"},
          {"two",
           "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
           "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.now:1"
           "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
           "now({})\nnow({})"},
          {"no frame", "<|tool_call_begin|>now:12<|tool_call_argument_begin|>{}<|tool_call_end|>",
           "now({})"},
          {"no index", "<|tool_call_begin|>now<|tool_call_argument_begin|>{}", "now({})"},
          {"space", "<|tool_call_begin|> functions.now:0 <|tool_call_argument_begin|> {} ",
           "now({})"},
          {"text in front",
           "I will look.<|tool_calls_section_begin|><|tool_call_begin|>now:0"
           "<|tool_call_argument_begin|>{}",
           "content(I will look.)\nnow({})"},
          {"half a section", "<|tool_calls_section_begin|>x",
           "content(<|tool_calls_section_begin|>x)"},
          {"half a header", "<|tool_call_begin|>now:0", "content(<|tool_call_begin|>now:0)"},
          {"a mark in the header",
           "<|tool_call_begin|>a<|tool_call_begin|>now:0"
           "<|tool_call_argument_begin|>{}",
           "content(<|tool_call_begin|>a)\nnow({})"},
          {"an empty name", "<|tool_call_begin|><|tool_call_argument_begin|>{}",
           "content(<|tool_call_begin|><|tool_call_argument_begin|>{})"},
          {"nested", "<|tool_call_begin|>now:0<|tool_call_argument_begin|>{\"a\": {\"b\": [{}]}}x",
           "now({\"a\": {\"b\": [{}]}})\ncontent(x)"},
          {"no end", "<|tool_call_begin|>now:0<|tool_call_argument_begin|>{\"a\"", "now({\"a\")"},
      });
}

}  // namespace weft::router

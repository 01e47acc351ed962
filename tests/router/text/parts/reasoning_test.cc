#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "tests/router/text/parts/parse.h"

namespace weft::router {

TEST_CASE("Reasoning between its marks", "[parts]") {
  CheckCases(
      ToolOptions("none", "think"),
      {
          {"both", "<think>\nHm.\n</think>\n\nYes.", "reasoning(Hm.)\ncontent(Yes.)"},
          {"empty", "<think>\n\n</think>\n\nYes.", "content(Yes.)"},
          {"lines", "<think>a\n\n b</think>c ", "reasoning(a\n\n b)\ncontent(c )"},
          {"none", "Yes.", "content(Yes.)"},
          {"not closed", "<think>a b ", "reasoning(a b)"},
          {"cut in the mark", "<think>a</thi", "reasoning(a</thi)"},
          {"space in front", "\n <think>a</think>b", "reasoning(a)\ncontent(b)"},
          {"in text", "The tag <think> opens.", "content(The tag <think> opens.)"},
          {"closed only", "Yes.</think>No.", "content(Yes.</think>No.)"},
          {"an angle bracket", "<think>1 < 2 </ x</think>y", "reasoning(1 < 2 </ x)\ncontent(y)"},
          {"nested", "<think>a <think> b</think>c", "reasoning(a <think> b)\ncontent(c)"},
          {"again", "<think>a</think><think>b</think>c", "reasoning(a\nb)\ncontent(c)"},
          {"unicode", "<think>思</think>考", "reasoning(思)\ncontent(考)"},
      });
  PartParserOptions open = ToolOptions("none", "think");
  open.reasoning_open = true;
  CheckCases(open,
             {
                 {"opened by the prompt", "Hm.\n</think>\n\nYes.", "reasoning(Hm.)\ncontent(Yes.)"},
                 {"opened again", "<think>\nHm.</think>Yes.", "reasoning(Hm.)\ncontent(Yes.)"},
                 {"never closed", "Hm", "reasoning(Hm)"},
                 {"closed at once", "</think>Yes.", "content(Yes.)"},
             });
}

TEST_CASE("Calls inside of reasoning are reasoning", "[parts]") {
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  CheckCases(
      ToolOptions("hermes", "think"),
      {
          {"inside", "<think>I could " + call + " now.</think>No.",
           "reasoning(I could " + call + " now.)\ncontent(No.)"},
          {"behind", "<think>a</think>\n\n" + call, "reasoning(a)\nnow({})"},
          {"text between", "<think>a</think>\nOk.\n" + call, "reasoning(a)\ncontent(Ok.)\nnow({})"},
          {"reasoning again behind the call", call + "\n<think>b</think>c",
           "now({})\nreasoning(b)\ncontent(c)"},
          {"behind a call that is not closed",
           "<tool_call>{\"name\": \"now\"}<think>b</think>, c] d",
           "now({})\nreasoning(b)\ncontent(, c] d)"},
          {"not closed", "<think>a " + call, "reasoning(a " + call + ")"},
      });
  CheckCases(ToolOptions("llama3_json", "think"),
             {{"bare", "<think>{\"name\": \"now\"}</think>\n{\"name\": \"now\"}",
               "reasoning({\"name\": \"now\"})\nnow({})"}});
  CheckCases(ToolOptions("json", "think"),
             {{"JSON mode", "<think>a</think>\n{\"a\": 1}", "reasoning(a)\ncontent({\"a\": 1})"}});
}

TEST_CASE("Mistral's and Granite's reasoning", "[parts]") {
  CheckCases(
      ToolOptions("mistral", "mistral"),
      {
          {"both", "[THINK]a[/THINK]b", "reasoning(a)\ncontent(b)"},
          {"anywhere", "x [THINK]a[/THINK] b", "content(x)\nreasoning(a)\ncontent( b)"},
          {"with a call", "[THINK]a[/THINK][TOOL_CALLS]now[ARGS]{}", "reasoning(a)\nnow({})"},
          {"a call inside", "[THINK][TOOL_CALLS]now[ARGS]{}[/THINK]b",
           "reasoning([TOOL_CALLS]now[ARGS]{})\ncontent(b)"},
      });
  CheckCases(ToolOptions("none", "granite"),
             {
                 {"both", "Here is my thought process: a b.\n\nHere is my response: c",
                  "reasoning(a b.)\ncontent(c)"},
                 {"contracted", "Here's my thought process:\na Here's my response:\nc",
                  "reasoning(a)\ncontent(c)"},
                 {"nearly", "Here is my thought: a", "content(Here is my thought: a)"},
             });
}

TEST_CASE("A parser tells whether it stands inside of reasoning", "[parts]") {
  // Pieces, and whether reasoning is open behind each.
  using Pieces = std::vector<std::pair<const char*, bool>>;
  const auto check = [](const char* tool_parser, const char* reasoning_parser,
                        const Pieces& pieces) {
    auto parser = MakePartParser(ToolOptions(tool_parser, reasoning_parser));
    REQUIRE(parser.ok());
    std::vector<AnswerPart> parts;
    for (const auto& [text, inside] : pieces) {
      INFO(reasoning_parser << ": " << text);
      (*parser)->Take(text, &parts);
      CHECK((*parser)->InReasoning() == inside);
    }
  };
  check("none", "think",
        {{"<th", false}, {"ink>", true}, {"So.", true}, {"</think", true}, {">Yes.", false}});
  check("harmony", "harmony",
        {{"<|channel|>analysis", false},
         {"<|message|>", true},
         {"So.", true},
         {"<|end|>", false},
         {"<|start|>assistant<|channel|>final<|message|>Yes.", false}});
}

}  // namespace weft::router

// The grammars as text. That llguidance compiles them, and takes what the parsers read, is for
// tests of where it is linked.

#include "router/text/parts/tool_grammar.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/text/parts/parse.h"

namespace weft::router {
namespace {

using Choice = ToolGrammarOptions::Choice;

const std::vector<ToolSpec>& Two() {
  static const auto& tools = *new std::vector<ToolSpec>(
      {{"search", R"({"type": "object", "properties": {"query": {"type": "string"},
                      "days": {"type": "integer"}}, "required": ["query"]})"},
       {"now", ""}});
  return tools;
}

std::string Grammar(absl::string_view parser, ToolGrammarOptions options = {}) {
  const auto grammar = ToolGrammar(parser, Two(), options);
  REQUIRE(grammar.ok());
  return *grammar;
}

}  // namespace

TEST_CASE("A grammar spells the frame out and leaves arguments to the schema", "[parts]") {
  CHECK(Grammar("hermes") ==
        R"(start: "<tool_call>" calls
arguments_0: %json {"type":"object","properties":{"query":{"type":"string"},)"
        R"("days":{"type":"integer"}},"required":["query"]}
call_0: "{\"name\": \"search\", \"arguments\": " arguments_0 "}" "\n" "</tool_call>"
arguments_1: %json {"type":"object"}
call_1: "{\"name\": \"now\", \"arguments\": " arguments_1 "}" "\n" "</tool_call>"
call: call_0 | call_1
calls: "\n" call ("\n" "<tool_call>" "\n" call)*
)");
  CHECK(Grammar("qwen3_coder") ==
        R"(start: "<tool_call>" calls
value_0_0[lazy]: /(?s:.*)/ "\n</parameter>"
value_0_1: %json {"type":"integer"}
call_0: "<function=search>\n" "<parameter=query>\n" value_0_0 "\n" )"
        R"(("<parameter=days>\n" value_0_1 "\n</parameter>" "\n")? "</function>\n" "</tool_call>"
call_1: "<function=now>\n" "</function>\n" "</tool_call>"
call: call_0 | call_1
calls: "\n" call ("\n" "<tool_call>" "\n" call)*
)");
}

TEST_CASE("Control tokens are named by their ids", "[parts]") {
  ToolGrammarOptions options;
  options.control_token = [](absl::string_view text) -> std::optional<uint32_t> {
    if (text == "[TOOL_CALLS]") return 5;
    if (text == "<|python_tag|>") return 128010;
    if (text == "<tool_call>") return 151657;
    return std::nullopt;
  };
  CHECK(absl::StartsWith(Grammar("mistral", options), "start: <[5]> calls\n"));
  CHECK(absl::StartsWith(Grammar("hermes", options), "start: <[151657]> calls\n"));
  CHECK(absl::StrContains(Grammar("hermes", options), "\"</tool_call>\""));
  // With [ARGS] in the vocabulary a model writes Mistral's newer form.
  options.control_token = [](absl::string_view text) -> std::optional<uint32_t> {
    if (text == "[TOOL_CALLS]") return 9;
    if (text == "[ARGS]") return 32;
    return std::nullopt;
  };
  CHECK(absl::StrContains(Grammar("mistral", options), "call_1: \"now\" <[32]> arguments_1\n"));
  CHECK(absl::StrContains(Grammar("mistral", options), "calls: call (<[9]> call)*\n"));
}

TEST_CASE("The choice shapes the grammar", "[parts]") {
  ToolGrammarOptions options;
  options.choice = Choice::kNamed;
  options.name = "now";
  const std::string named = Grammar("hermes", options);
  CHECK_FALSE(absl::StrContains(named, "search"));
  CHECK_FALSE(absl::StrContains(named, ")*"));
  options.choice = Choice::kRequired;
  options.parallel_calls = false;
  CHECK_FALSE(absl::StrContains(Grammar("hermes", options), ")*"));
  options.choice = Choice::kAuto;
  CHECK(absl::StartsWith(Grammar("hermes", options),
                         "start: TEXT | head calls\nhead[lazy]: TEXT \"<tool_call>\"\n"));
  CHECK(absl::StartsWith(Grammar("llama3_json", options), "start: TEXT? | calls\n"));
  options.control_token = [](absl::string_view) { return std::optional<uint32_t>(7); };
  CHECK(absl::StartsWith(Grammar("hermes", options), "start: TEXT | TEXT <[7]> calls\n"));
}

TEST_CASE("Every tool parser has a grammar", "[parts]") {
  for (const absl::string_view parser : ToolParserNames()) {
    for (const Choice choice : {Choice::kRequired, Choice::kNamed, Choice::kAuto}) {
      for (const bool tokens : {false, true}) {
        ToolGrammarOptions options;
        options.choice = choice;
        options.name = "search";
        if (tokens) {
          options.control_token = [](absl::string_view) { return std::optional<uint32_t>(7); };
        }
        const std::string grammar = Grammar(parser, options);
        CAPTURE(std::string(parser), grammar);
        CHECK(absl::StartsWith(grammar, "start: "));
        CHECK(absl::StrContains(grammar, "\ncall: call_0"));
        CHECK(absl::StrContains(grammar, "%json "));
      }
    }
  }
}

TEST_CASE("A grammar for nothing is refused", "[parts]") {
  const auto message = [](const absl::StatusOr<std::string>& grammar) {
    REQUIRE(grammar.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(grammar.status().message());
  };
  ToolGrammarOptions options;
  CHECK(absl::StrContains(message(ToolGrammar("none", Two(), options)), "\"none\""));
  CHECK(absl::StrContains(message(ToolGrammar("hermes", {}, options)), "no tools"));
  CHECK(absl::StrContains(message(ToolGrammar("hermes", {{"f", "[1]"}}, options)), "\"f\""));
  CHECK(absl::StrContains(message(ToolGrammar("hermes", {{"f", "{"}}, options)), "\"f\""));
  options.choice = Choice::kNamed;
  options.name = "g";
  CHECK(absl::StrContains(message(ToolGrammar("hermes", Two(), options)), "\"g\""));
}

}  // namespace weft::router

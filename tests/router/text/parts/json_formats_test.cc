// Formats whose calls are JSON objects: what is each one's own, and what models get wrong.

#include <catch2/catch.hpp>

#include "tests/router/text/parts/parse.h"

namespace weft::router {

TEST_CASE("Hermes", "[parts]") {
  CheckCases(
      ToolOptions("hermes"),
      {
          {"call", R"(<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>)",
           R"(get_weather({"city": "Paris"}))"},
          {"without a line feed",
           R"(<tool_call>{"name":"search","arguments":{"query":"a"}}</tool_call>)",
           R"(search({"query":"a"}))"},
          {"two, no line between",
           R"(<tool_call>{"name":"now","arguments":{}}</tool_call>)"
           R"(<tool_call>{"name":"now","arguments":{}}</tool_call>)",
           "now({})\nnow({})"},
          {"two objects in one frame",
           "<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n{\"name\":\"search\",\"arguments\":"
           "{\"query\":\"b\"}}\n</tool_call>",
           "now({})\nsearch({\"query\":\"b\"})"},
          {"a list in the frame",
           R"(<tool_call>[{"name":"now","arguments":{}}, {"name":"now"}]</tool_call> Bye.)",
           "now({})\nnow({})\ncontent(Bye.)"},
          {"arguments before the name",
           R"(<tool_call>{"arguments": {"query": "x"}, "name": "search"}</tool_call>)",
           R"(search({"query": "x"}))"},
          {"parameters for arguments",
           R"(<tool_call>{"name": "search", "parameters": {"query": "x"}}</tool_call>)",
           R"(search({"query": "x"}))"},
          {"arguments as a string of JSON",
           R"(<tool_call>{"name": "search", "arguments": )"
           R"("{\"query\": \"a\\nb \u00e9 \ud83d\ude00\"}"}</tool_call>)",
           "search({\"query\": \"a\\nb é 😀\"})"},
          {"an empty string of arguments",
           R"(<tool_call>{"name": "now", "arguments": ""}</tool_call>)", "now({})"},
          {"null", R"(<tool_call>{"name": "now", "arguments": null}</tool_call>)", "now({})"},
          {"no arguments", R"(<tool_call>{"name": "now"}</tool_call>)", "now({})"},
          {"keys that mean nothing",
           R"(<tool_call>{"type": "function", "id": 7, "name": "now", "x": [{}], )"
           R"("arguments": {}}</tool_call>)",
           "now({})"},
          {"an escape in the name",
           R"(<tool_call>{"name": "no\u0077", "arguments": {}}</tool_call>)", "now({})"},
          {"a line feed in a string",
           "<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"a\nb\tc\"}}</tool_call>",
           R"(search({"query": "a\nb\tc"}))"},
          {"one brace too many", R"(<tool_call>{"name": "now", "arguments": {}}}</tool_call>Well.)",
           "now({})\ncontent(Well.)"},
          {"the closing mark is missing",
           "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n<tool_call>{\"name\": \"search\", "
           "\"arguments\": {}}",
           "now({})\nsearch({})"},
          {"the object's end is missing",
           R"(<tool_call>{"name": "search", "arguments": {"query": "a"</tool_call> So.)",
           "search({\"query\": \"a\")\ncontent(So.)"},
          {"no JSON in the arguments",
           "<tool_call>{\"name\": \"search\", \"arguments\": {'query': 'a'}}</tool_call>",
           "search({)\ncontent('query': 'a'}}</tool_call>)"},
          {"single quotes", "<tool_call>{'name': 'now'}</tool_call>",
           "content(<tool_call>{'name': 'now'}</tool_call>)"},
          {"a mark in a string",
           R"(<tool_call>{"name":"search","arguments":)"
           R"({"query":"</tool_call> <tool_call>"}}</tool_call>)",
           R"(search({"query":"</tool_call> <tool_call>"}))"},
          {"two marks", R"(<tool_call><tool_call>{"name":"now"}</tool_call>)",
           "content(<tool_call>)\nnow({})"},
          {"marks that nothing is in", "a <tool_call></tool_call> b",
           "content(a <tool_call></tool_call> b)"},
          {"text about marks", "Use `<tool_call>` for calls.",
           "content(Use `<tool_call>` for calls.)"},
          {"a call behind a broken one", R"(<tool_call>oops <tool_call>{"name":"now"}</tool_call>)",
           "content(<tool_call>oops)\nnow({})"},
          {"text behind a list", R"(<tool_call>[{"name":"now"}], {"a": 1})",
           "now({})\ncontent(, {\"a\": 1})"},
          {"arguments twice",
           R"(<tool_call>{"name":"now","arguments":{},"parameters":{"a":1}}</tool_call>)",
           "now({})"},
          {"a number, a list", R"(<tool_call>{"name":"now","arguments":[1, -2.5e3]}</tool_call>)",
           "now([1, -2.5e3])"},
          {"no closing bracket at the answer's end",
           R"(<tool_call>{"name":"now","arguments":{"a": 1})", R"(now({"a": 1}))"},
      });
}

TEST_CASE("Llama 3", "[parts]") {
  CheckCases(
      ToolOptions("llama3_json"),
      {
          {"call", R"({"name": "get_weather", "parameters": {"city": "Paris"}})",
           R"(get_weather({"city": "Paris"}))"},
          {"behind its token", R"(<|python_tag|>{"name": "now", "parameters": {}})", "now({})"},
          {"type first", R"({"type": "function", "name": "now", "parameters": {}})", "now({})"},
          {"arguments for parameters", R"({"name": "now", "arguments": {}})", "now({})"},
          {"two by semicolon",
           R"({"name": "now", "parameters": {}}; {"name": "search", "parameters": {"query": "q"}})",
           "now({})\nsearch({\"query\": \"q\"})"},
          {"two by lines", "{\"name\": \"now\"}\n{\"name\": \"now\"}\n", "now({})\nnow({})"},
          {"two behind tokens",
           R"(<|python_tag|>{"name": "now"}<|eom_id|><|python_tag|>{"name": "now"}<|eot_id|>)",
           "now({})\nnow({})"},
          {"space in front", "\n\n {\"name\": \"now\"}", "now({})"},
          {"text in front of the token", R"(Well.
<|python_tag|>{"name": "now"})",
           "content(Well.)\nnow({})"},
          {"text in front of a bare one", R"(Well: {"name": "now"})",
           R"(content(Well: {"name": "now"}))"},
          {"JSON that is no call", R"({"city": "Paris", "sizes": [1, 2]})",
           R"(content({"city": "Paris", "sizes": [1, 2]}))"},
          {"a program behind the token", R"(<|python_tag|>print("now"))",
           R"(content(<|python_tag|>print("now")))"},
          {"text behind", R"({"name": "now"} is it.)", "now({})\ncontent(is it.)"},
          {"JSON that is no call behind one", R"({"name": "now"}; {"a": 1})",
           "now({})\ncontent({\"a\": 1})"},
          {"booleans", R"({"name": "now", "parameters": {"a": true, "b": null}})",
           R"(now({"a": true, "b": null}))"},
      });
}

TEST_CASE("Generic JSON", "[parts]") {
  CheckCases(ToolOptions("json"),
             {
                 {"object", R"({"name": "now", "arguments": {}})", "now({})"},
                 {"list", R"([{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}])",
                  "now({})\nnow({})"},
                 {"in a block of code", "```json\n{\"name\": \"now\"}\n```\nThere.",
                  "now({})\ncontent(There.)"},
                 {"another block of code", "```json\n{\"a\": 1}\n```",
                  "content(```json\n{\"a\": 1}\n```)"},
                 {"another language", "```python\nx\n```", "content(```python\nx\n```)"},
                 {"a number", "42", "content(42)"},
                 {"an empty list", "[]", "content([])"},
                 {"an empty object", "{}", "content({})"},
                 {"a list of numbers", "[1, 2]", "content([1, 2])"},
                 {"a name without a call", R"({"name": "Bob"})", R"(content({"name": "Bob"}))"},
                 {"a link", "[now](http://x)", "content([now](http://x))"},
                 {"text in front", R"(x {"name": "now"})", R"(content(x {"name": "now"}))"},
                 {"cut in the name", R"({"name": "no)", R"(content({"name": "no))"},
                 {"cut in the arguments", R"({"name": "now", "arguments": {"a)", R"(now({"a))"},
             });
}

TEST_CASE("Granite and Phi 4 mini", "[parts]") {
  CheckCases(ToolOptions("granite"),
             {
                 {"token", R"(<|tool_call|>[{"name": "now", "arguments": {}}])", "now({})"},
                 {"token and tag", R"(<|tool_call|> {"name": "now"})", "now({})"},
                 {"tag", R"(<tool_call>[{"name": "now"}, {"name": "now"}]</tool_call>)",
                  "now({})\nnow({})"},
                 {"empty", "<|tool_call|>[]", "content(<|tool_call|>[])"},
             });
  CheckCases(ToolOptions("phi4_mini"),
             {
                 {"word", R"(functools[{"name": "now", "arguments": {}}])", "now({})"},
                 {"the word in text", R"(Use functools[0].)", "content(Use functools[0].)"},
                 {"the word first", "functools is a module", "content(functools is a module)"},
                 {"token", R"(<|tool_call|>[{"name": "now"}]<|/tool_call|>)", "now({})"},
             });
}

TEST_CASE("Without a parser all is content", "[parts]") {
  PartParserOptions none;
  CheckCases(none, {{"no parser", "<tool_call>{\"name\":\"now\"}</tool_call> ",
                     "content(<tool_call>{\"name\":\"now\"}</tool_call> )"},
                    {"space", " \n x ", "content( \n x )"}});
}

}  // namespace weft::router

// Formats with each argument between tags: how text becomes JSON.

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/router/text/parts/parse.h"

namespace weft::router {
namespace {

// A call of get_weather with one parameter, in the form of Qwen3-Coder.
std::string Coder(const std::string& key, const std::string& value) {
  return absl::StrCat("<tool_call>\n<function=get_weather>\n<parameter=", key, ">\n", value,
                      "\n</parameter>\n</function>\n</tool_call>");
}

}  // namespace

TEST_CASE("Values become JSON by the schema's type", "[parts]") {
  CheckCases(
      ToolOptions("qwen3_coder"),
      {
          {"string", Coder("city", "Paris"), R"(get_weather({"city": "Paris"}))"},
          {"a string like a number", Coder("city", "5"), R"(get_weather({"city": "5"}))"},
          {"a string like an object", Coder("city", "{\"a\": 1}"),
           R"(get_weather({"city": "{\"a\": 1}"}))"},
          {"an empty string", Coder("city", ""), R"(get_weather({"city": ""}))"},
          {"lines", Coder("city", "\n a\n\nb\\ \n"), R"(get_weather({"city": "\n a\n\nb\\ \n"}))"},
          {"an integer", Coder("days", "3"), R"(get_weather({"days": 3}))"},
          {"an integer with space", Coder("days", " -30 "), R"(get_weather({"days": -30}))"},
          {"no integer", Coder("days", "three"), R"(get_weather({"days": "three"}))"},
          {"no JSON number", Coder("days", "03"), R"(get_weather({"days": "03"}))"},
          {"number and text", Coder("days", "3 days"), R"(get_weather({"days": "3 days"}))"},
          {"a boolean", Coder("metric", "true"), R"(get_weather({"metric": true}))"},
          {"Python's", Coder("metric", "False"), R"(get_weather({"metric": false}))"},
          {"nearly Python's", Coder("metric", "Falsehood"),
           R"(get_weather({"metric": "Falsehood"}))"},
          {"a list", Coder("tags", "[\"a\", \"b\"]"), R"(get_weather({"tags": ["a", "b"]}))"},
          {"a list of lines", Coder("tags", "[\"a\nb\"\n]"),
           "get_weather({\"tags\": [\"a\\nb\"\n]})"},
          {"Python's list", Coder("tags", "['a', \"b\",]"), R"(get_weather({"tags": ["a", "b"]}))"},
          {"Python's dictionary", Coder("place", "{'a': None, 'b': (1, True)}"),
           R"(get_weather({"place": {"a": null, "b": [1, true]}}))"},
          {"Python's number", Coder("limit", "+1_000."), R"(get_weather({"limit": 1000.0}))"},
          {"half a list", Coder("tags", "[\"a\", "), R"(get_weather({"tags": "[\"a\", "}))"},
          {"an object", Coder("place", "{\"a\": {\"b\": 1}}"),
           R"(get_weather({"place": {"a": {"b": 1}}}))"},
          {"null where a string may be", Coder("unit", "null"), R"(get_weather({"unit": null}))"},
          {"a string where null may be", Coder("unit", "nullable"),
           R"(get_weather({"unit": "nullable"}))"},
          {"half of null", Coder("unit", "nul"), R"(get_weather({"unit": "nul"}))"},
          {"unknown: a number", Coder("other", "1.5"), R"(get_weather({"other": 1.5}))"},
          {"unknown: text", Coder("other", "one"), R"(get_weather({"other": "one"}))"},
          {"unknown: nothing", Coder("other", ""), R"(get_weather({"other": ""}))"},
      });
}

TEST_CASE("Qwen3-Coder", "[parts]") {
  CheckCases(
      ToolOptions("qwen3_coder"),
      {
          {"no parameters", "<tool_call>\n<function=now>\n</function>\n</tool_call>", "now({})"},
          {"on one line",
           "<tool_call><function=search><parameter=query>a b</parameter></function></tool_call>",
           R"(search({"query": "a b"}))"},
          {"no outer tag", "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>",
           R"(search({"query": "x"}))"},
          {"tags in a value", Coder("city", "<b>a</b></param> </function"),
           R"(get_weather({"city": "<b>a</b></param> </function"}))"},
          {"two parameters",
           "<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=text>\n\"b\"\n"
           "</parameter>\n</function>",
           R"(write({"path": "a", "text": "\"b\""}))"},
          {"an unknown tool", "<tool_call>\n<function=f>\n</function>\n</tool_call>",
           "content(<tool_call>\n<function=f>\n</function>\n</tool_call>)"},
          {"no function", "<tool_call>\n{}", "content(<tool_call>\n{})"},
          {"text in the function", "<function=now>\ntext</function>",
           "now()\ncontent(text</function>)"},
          {"a second call for the rest", "<function=search>\n<par<function=now>\n</function>",
           "search()\ncontent(<par)\nnow({})"},
          {"cut in a value", "<function=search>\n<parameter=query>\nab",
           R"(search({"query": "ab))"},
          {"cut in a number", "<function=get_weather>\n<parameter=days>\n12",
           R"(get_weather({"days": 12))"},
          {"text behind", "<function=now>\n</function>\n</tool_call>\n\nSo be it.",
           "now({})\ncontent(So be it.)"},
          {"an angle bracket", "a < b <f <function", "content(a < b <f <function)"},
      });
}

TEST_CASE("GLM 4.5", "[parts]") {
  CheckCases(
      ToolOptions("glm45"),
      {
          {"call",
           "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
           R"(search({"query": "a"}))"},
          {"on one line",
           "<tool_call>search<arg_key>query</arg_key><arg_value>a</arg_value></tool_call>",
           R"(search({"query": "a"}))"},
          {"a line feed first", "<tool_call>\nnow\n</tool_call>", "now({})"},
          {"no arguments", "<tool_call>now</tool_call>", "now({})"},
          {"types",
           "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
           "<arg_key>city</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
           R"(get_weather({"days": 2, "city": "2"}))"},
          {"lines of a value",
           "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>\na\n</arg_value>\n</"
           "tool_call>",
           R"(search({"query": "\na\n"}))"},
          {"two", "<tool_call>now\n</tool_call>\n<tool_call>now\n</tool_call>", "now({})\nnow({})"},
          {"text around", "Hm.\n<tool_call>now\n</tool_call>\nWell.",
           "content(Hm.)\nnow({})\ncontent(\nWell.)"},
          {"JSON", "<tool_call>{\"name\": \"now\"}</tool_call>",
           "content(<tool_call>{\"name\": \"now\"}</tool_call>)"},
          {"unknown", "<tool_call>f\n</tool_call>", "content(<tool_call>f\n</tool_call>)"},
          {"a key without a value", "<tool_call>now\n<arg_key>a</arg_key>\n</tool_call>", "now()"},
          {"a call in a call", "<tool_call>now\n<tool_call>now\n</tool_call>", "now()\nnow({})"},
          {"cut", "<tool_call>now\n<arg", "now()"},
      });
}

TEST_CASE("MiniMax M2 and DeepSeek V3.2", "[parts]") {
  CheckCases(
      ToolOptions("minimax_m2"),
      {
          {"call",
           "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter "
           "name=\"query\">a</parameter>\n"
           "</invoke>\n</minimax:tool_call>",
           R"(search({"query": "a"}))"},
          {"two in a frame",
           "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke "
           "name=\"now\">\n</invoke>\n"
           "</minimax:tool_call>",
           "now({})\nnow({})"},
          {"a tag in text", "Use <invoke name=\"now\">.", "content(Use <invoke name=\"now\">.)"},
      });
  CheckCases(
      ToolOptions("deepseek_v32"),
      {
          {"the tag tells the type",
           "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">\n<｜DSML｜parameter name=\"a\" "
           "string=\"true\">5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">5"
           "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
           R"(now({"a": "5", "b": 5}))"},
          {"other attributes",
           "<｜DSML｜invoke name=\"now\">\n<｜DSML｜parameter name=\"a\" x=\"y\">z"
           "</｜DSML｜parameter>\n</｜DSML｜invoke>",
           R"(now({"a": "z"}))"},
      });
}

TEST_CASE("A value whose type shows at its end is held within bounds", "[parts]") {
  // As JSON it goes out when it has become too long to be held.
  const std::string numbers = absl::StrCat("[1", std::string(kToolCallHeldBytesMax, ' '), ", 2]");
  CHECK(Show(ParsePieces(ToolOptions("qwen3_coder"), {Coder("tags", numbers)})) ==
        absl::StrCat("get_weather({\"tags\": ", numbers, "})"));
  // And when it breaks after that, the call ends.
  const std::string broken = absl::StrCat("[1", std::string(kToolCallHeldBytesMax, ' '), "x");
  const std::string shown = Show(ParsePieces(ToolOptions("qwen3_coder"), {Coder("tags", broken)}));
  CHECK(shown.substr(0, 24) == "get_weather({\"tags\": [1 ");
  const std::string end = " )\ncontent(x\n</parameter>\n</function>\n</tool_call>)";
  CHECK(shown.substr(shown.size() - end.size()) == end);
  // What cannot be JSON is a string from there on.
  auto parser = MakePartParser(ToolOptions("qwen3_coder"));
  REQUIRE(parser.ok());
  std::vector<AnswerPart> parts;
  (*parser)->Take(absl::StrCat("<function=get_weather>\n<parameter=tags>\n['",
                               std::string(kToolCallHeldBytesMax, 'x')),
                  &parts);
  CHECK(parts.back().text.size() > kToolCallHeldBytesMax);
}

}  // namespace weft::router

// What holds of every format: the same scenarios, written in each.

#include <catch2/catch.hpp>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "common/limits.h"
#include "tests/router/text/parts/format_samples.h"
#include "tests/router/text/parts/parse.h"
#include "tests/support/seed.h"

namespace weft::router {
namespace {

namespace json = boost::json;
using Kind = AnswerPart::Kind;

struct Answer {
  std::string content;
  std::string reasoning;
  struct Call {
    std::string name;
    std::string arguments;
  };
  std::vector<Call> calls;
};

Answer Collect(const std::vector<AnswerPart>& parts) {
  Answer answer;
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case Kind::kContent:
        answer.content += part.text;
        break;
      case Kind::kReasoning:
        answer.reasoning += part.text;
        break;
      case Kind::kToolBegin:
        CHECK(part.call == answer.calls.size());
        answer.calls.push_back({part.name, ""});
        break;
      case Kind::kToolArguments:
        REQUIRE(part.call < answer.calls.size());
        answer.calls[part.call].arguments += part.text;
        break;
    }
  }
  return answer;
}

Answer ParseAnswer(const PartParserOptions& options, const std::string& text) {
  Parse(options, text);  // each cut
  return Collect(ParsePieces(options, {text}));
}

json::object Object(const std::string& text) { return json::parse(text).as_object(); }

void CheckCalls(const Answer& answer, const std::vector<SampleCall>& calls) {
  REQUIRE(answer.calls.size() == calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(answer.calls[i].arguments);
    CHECK(answer.calls[i].name == calls[i].name);
    json::error_code error;
    const json::value value = json::parse(answer.calls[i].arguments, error);
    REQUIRE(!error);
    CHECK(json::serialize(value) == json::serialize(calls[i].arguments));
  }
}

void CheckRoundTrip(absl::string_view format, const std::vector<SampleCall>& calls) {
  const std::string text = WriteCalls(format, calls);
  CAPTURE(std::string(format), text);
  const Answer answer = ParseAnswer(ToolOptions(format), text);
  CHECK(answer.content.empty());
  CHECK(answer.reasoning.empty());
  CheckCalls(answer, calls);
}

const SampleCall kParis = {"get_weather", {{"city", "Paris"}, {"days", 3}}};
const SampleCall kSearch = {"search", {{"query", "sea"}}};

}  // namespace

TEST_CASE("Every format reads the calls that it writes", "[parts]") {
  const std::vector<std::vector<SampleCall>> answers = {
      {kParis},
      {kParis, kSearch},
      {kParis, kParis, {"now", {}}},
      {{"now", {}}},
      {{"search", {{"query", "Zürich, 東京 😀"}}}},
      {{"search", {{"query", "a \"quote\" and a \\ and 'this'"}}}},
      {{"search", {{"query", "nested {braces} [and] (these), </x> } ] )"}}}},
      {{"write", {{"path", "a.py"}, {"text", "def f(x):\n    return {\"a\": [x]}\n# end"}}}},
      {{"get_weather",
        {{"city", "Oslo"}, {"metric", true}, {"tags", {"x", "y, z", "]"}}, {"unit", nullptr}}}},
      {{"get_weather", {{"city", ""}, {"place", Object(R"({"a": {"b": [1, {"c": null}]}})")}}}},
      {{"get_weather", {{"city", "5"}, {"days", -7}, {"limit", 2.5}}}},
      {{"get_weather", {{"city", "true"}, {"metric", false}, {"unit", "C"}}}},
  };
  for (const absl::string_view format : ToolParserNames()) {
    for (const std::vector<SampleCall>& calls : answers) CheckRoundTrip(format, calls);
  }
}

TEST_CASE("Every format leaves plain text as it is", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    for (const std::string text :
         {"Hello.", "", " ", "\n\nTwo\n\nparagraphs \n", "a < b, [x](y), {z} and f(a=1)", "東京 <",
          "\"name\": \"get_weather\"", "5 < 6 <tool", "<｜to", "<|chan", "``` x ```",
          "trailing  "}) {
      CAPTURE(std::string(format), text);
      const Answer answer = ParseAnswer(ToolOptions(format), text);
      CHECK(answer.content == text);
      CHECK(answer.calls.empty());
    }
  }
}

TEST_CASE("Text around calls is content", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    if (!MayFollowText(format)) continue;
    const std::string text = absl::StrCat("Let me look.\n\n", WriteCalls(format, {kParis, kSearch}),
                                          "\n\nDone, he said.");
    CAPTURE(std::string(format), text);
    const Answer answer = ParseAnswer(ToolOptions(format), text);
    CHECK(answer.content == "Let me look.\n\nDone, he said.");
    CheckCalls(answer, {kParis, kSearch});
  }
}

TEST_CASE("A call to a tool that the request does not have is content", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    const std::string text = WriteCalls(format, {{"no_such_tool", {{"a", 1}}}});
    CAPTURE(std::string(format), text);
    const Answer answer = ParseAnswer(ToolOptions(format), text);
    CHECK(answer.calls.empty());
    if (format == "harmony") {
      CHECK(answer.content == R"({"a":1})");
    } else {
      CHECK(answer.content == text);
    }
    // Where no tools are named, any name is a tool's.
    PartParserOptions any = ToolOptions(format);
    any.tools = nullptr;
    CheckCalls(ParseAnswer(any, text), {{"no_such_tool", {{"a", 1}}}});
  }
}

TEST_CASE("Without parallel calls those behind the first are left out", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    PartParserOptions options = ToolOptions(format);
    options.parallel_calls = false;
    const Answer answer = ParseAnswer(options, WriteCalls(format, {kParis, kSearch, kSearch}));
    CAPTURE(std::string(format));
    CheckCalls(answer, {kParis});
    CHECK(answer.content.empty());
  }
}

TEST_CASE("Garbage behind an opening is content", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    for (const std::string garbage : {"", " ", "no call", "{]", "\"", "42", "東京"}) {
      const std::string text = OpeningOf(format) + garbage;
      CAPTURE(std::string(format), text);
      const Answer answer = ParseAnswer(ToolOptions(format), text);
      CHECK(answer.calls.empty());
      CHECK(answer.content == text);
    }
  }
}

TEST_CASE("A call is found behind one that broke", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    if (!MayFollowText(format)) continue;
    const std::string call = WriteCalls(format, {kParis});
    for (size_t cut = 1; cut < call.size(); ++cut) {
      const std::string text = call.substr(0, cut) + "\n" + call;
      CAPTURE(std::string(format), text);
      const Answer answer = Collect(ParsePieces(ToolOptions(format), {text}));
      REQUIRE(!answer.calls.empty());
      CHECK(answer.calls.back().name == "get_weather");
      // A string that is cut goes on through the mark of the next call: then there is one.
      CHECK(answer.calls.size() <= 2);
    }
  }
}

TEST_CASE("An answer cut anywhere gives a beginning of its calls", "[parts]") {
  const std::vector<SampleCall> calls = {
      {"get_weather", {{"city", "Par\nis é"}, {"days", 12}, {"metric", true}, {"tags", {"a"}}}},
      kSearch};
  for (const absl::string_view format : ToolParserNames()) {
    const std::string text = WriteCalls(format, calls);
    const Answer whole = Collect(ParsePieces(ToolOptions(format), {text}));
    std::string front;
    size_t begun = 0;
    for (const std::string& character : Characters(text)) {
      front += character;
      CAPTURE(std::string(format), front);
      const Answer cut = Collect(ParsePieces(ToolOptions(format), {front}));
      REQUIRE(cut.calls.size() <= whole.calls.size());
      CHECK(cut.calls.size() >= begun);
      begun = cut.calls.size();
      for (size_t i = 0; i < cut.calls.size(); ++i) {
        CHECK(cut.calls[i].name == whole.calls[i].name);
        // A call of harmony without a byte yet is complete for all that its text says.
        if (format == "harmony" && cut.calls[i].arguments == "{}") continue;
        CHECK(absl::StartsWith(whole.calls[i].arguments, cut.calls[i].arguments));
      }
      // What is no call yet is text; a frame behind a call is nothing.
      if (begun == 0) CHECK(cut.content == front);
    }
    CHECK(begun == 2);
  }
}

TEST_CASE("Arguments are handed out as they come", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    const std::string text = WriteCalls(format, {{"search", {{"query", "0123456789"}}}});
    const size_t value = text.find("0123456789");
    auto parser = MakePartParser(ToolOptions(format));
    REQUIRE(parser.ok());
    std::vector<AnswerPart> parts;
    (*parser)->Take(text.substr(0, value), &parts);
    CAPTURE(std::string(format));
    REQUIRE(!parts.empty());
    CHECK(parts.front().name == "search");
    for (size_t i = 0; i < 10; ++i) {
      parts.clear();
      (*parser)->Take(text.substr(value + i, 1), &parts);
      REQUIRE(parts.size() == 1);
      CHECK(parts.front().kind == Kind::kToolArguments);
      CHECK(parts.front().text == text.substr(value + i, 1));
    }
  }
}

TEST_CASE("Text that no call can begin with is handed out at once", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    auto parser = MakePartParser(ToolOptions(format, format == "harmony" ? "harmony" : "think"));
    REQUIRE(parser.ok());
    for (const std::string piece : {"Hello", ",", " world", " a=b", ".", "東", " <b", " tea"}) {
      std::vector<AnswerPart> parts;
      (*parser)->Take(piece, &parts);
      CAPTURE(std::string(format), piece);
      REQUIRE(parts.size() == 1);
      CHECK(parts.front().text == piece);
    }
  }
}

TEST_CASE("Held text is bounded", "[parts]") {
  const std::string blanks(10 * kAnswerSpaceHeldBytesMax, ' ');
  const std::string long_string(2 * kToolCallHeldBytesMax, 'x');
  for (const absl::string_view format : ToolParserNames()) {
    for (const std::string& text :
         {blanks, absl::StrCat(OpeningOf(format), blanks, "x"), absl::StrCat("a", blanks, "b"),
          absl::StrCat(OpeningOf(format), "{\"arguments\": {\"a\": \"", long_string),
          absl::StrCat(OpeningOf(format), "get_weather", long_string)}) {
      auto parser = MakePartParser(ToolOptions(format));
      REQUIRE(parser.ok());
      std::vector<AnswerPart> parts;
      size_t given = 0;
      for (size_t at = 0; at < text.size(); at += 100) {
        parts.clear();
        (*parser)->Take(text.substr(at, 100), &parts);
        for (const AnswerPart& part : parts) given += part.text.size();
        CHECK(given + kToolCallHeldBytesMax + 200 >= at);
      }
      parts.clear();
      (*parser)->Finish(&parts);
      for (const AnswerPart& part : parts) given += part.text.size();
      CHECK(given == text.size());
    }
  }
}

TEST_CASE("Held space is bounded", "[parts]") {
  for (const absl::string_view format : ToolParserNames()) {
    for (const std::string front : {"", "a"}) {
      auto parser = MakePartParser(ToolOptions(format));
      REQUIRE(parser.ok());
      std::vector<AnswerPart> parts;
      (*parser)->Take(absl::StrCat(front, std::string(3 * kAnswerSpaceHeldBytesMax, ' ')), &parts);
      size_t given = 0;
      for (const AnswerPart& part : parts) given += part.text.size();
      CAPTURE(std::string(format));
      CHECK(given >= 2 * kAnswerSpaceHeldBytesMax);
    }
  }
}

TEST_CASE("How an answer is cut into pieces changes nothing", "[parts]") {
  const uint64_t seed = test::Seed(20261123);
  std::mt19937_64 random(seed);
  const std::vector<std::string> words = {"<think>",
                                          "</think>",
                                          "[THINK]",
                                          "[/THINK]",
                                          "Here is my thought process:",
                                          "Here is my response:",
                                          " ",
                                          "\n",
                                          "x",
                                          "é",
                                          "😀",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          ",",
                                          ";",
                                          ":",
                                          "\"",
                                          "\\",
                                          "'",
                                          "=",
                                          "<",
                                          ">",
                                          "name",
                                          "arguments",
                                          "get_weather",
                                          "search",
                                          "city",
                                          "12",
                                          "true",
                                          "null",
                                          "{\"name\": \"search\", \"arguments\": {\"query\": \"",
                                          "\\u00e9",
                                          "\\ud83d",
                                          "```json",
                                          "```",
                                          "<function=",
                                          "search>",
                                          "<parameter=",
                                          "</parameter>",
                                          "</function>",
                                          "<tool_call>",
                                          "</tool_call>",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "[ARGS]",
                                          "[CALL_ID]",
                                          "<|channel|>",
                                          "<|message|>",
                                          "<|end|>",
                                          "<|call|>",
                                          "<|start|>",
                                          "analysis",
                                          "final",
                                          "commentary",
                                          " to=functions.search",
                                          "<|python_tag|>",
                                          "functools"};
  for (int round = 0; round < 4000; ++round) {
    const auto names = ToolParserNames();
    const absl::string_view format = names[random() % names.size()];
    std::string text;
    for (uint64_t left = random() % 24; left > 0; --left) {
      const uint64_t kind = random() % 8;
      if (kind == 0) {
        const std::string call = WriteCalls(format, {kParis, kSearch});
        text += call.substr(0, random() % (call.size() + 1));
      } else if (kind == 1) {
        text += OpeningOf(format);
      } else {
        text += words[random() % words.size()];
      }
    }
    const auto reasoning = ReasoningParserNames();
    PartParserOptions options =
        ToolOptions(format, format == "harmony" ? "harmony" : reasoning[random() % 4]);
    if (options.reasoning_parser == "harmony" && format != "harmony") {
      options.reasoning_parser = "none";
    }
    options.reasoning_open = random() % 4 == 0;
    options.parallel_calls = random() % 4 != 0;
    CAPTURE(seed, round, options.tool_parser, options.reasoning_parser, text);
    const std::string whole = Show(ParsePieces(options, {text}));
    CHECK(Show(ParsePieces(options, Characters(text))) == whole);
    std::vector<std::string> pieces(1);
    for (const std::string& character : Characters(text)) {
      if (random() % 4 == 0) pieces.emplace_back();
      pieces.back() += character;
    }
    CHECK(Show(ParsePieces(options, pieces)) == whole);
  }
}

}  // namespace weft::router

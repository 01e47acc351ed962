// Calls as in Python, and Python's literals as JSON.

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/router/text/parts/parse.h"

namespace weft::router {
namespace {

std::string Now(const std::string& value) { return absl::StrCat("[now(a=", value, ")]"); }
std::string Made(const std::string& value) { return absl::StrCat("now({\"a\": ", value, "})"); }

}  // namespace

TEST_CASE("Pythonic calls", "[parts]") {
  for (const absl::string_view name : {"pythonic", "llama4_pythonic"}) {
    CheckCases(
        ToolOptions(name),
        {
            {"call", "[search(query=\"a\")]", R"(search({"query": "a"}))"},
            {"none", "[now()]", "now({})"},
            {"two", "[search(query='a'), now()]", "search({\"query\": \"a\"})\nnow({})"},
            {"several arguments", "[get_weather(city='Oslo', days=2, metric=True)]",
             R"(get_weather({"city": "Oslo", "days": 2, "metric": true}))"},
            {"space", " [ search ( query = 'a' ) ] ", "content( [ search ( query = 'a' ) ] )"},
            {"space where Python has it", "[\n search(\n query = 'a' ,\n)\n]\n",
             R"(search({"query": "a"}))"},
            {"tokens around", "<|python_start|>[now()]<|python_end|>", "now({})"},
            {"text in front of tokens", "So: <|python_start|>[now()]<|python_end|>",
             "content(So:)\nnow({})"},
            {"text in front", "So: [now()]", "content(So: [now()])"},
            {"text behind", "[now()] is it", "now({})\ncontent(is it)"},
            {"a list", "[1, 2, 3]", "content([1, 2, 3])"},
            {"a link", "[search](http://x) for", "content([search](http://x) for)"},
            {"an unknown tool", "[f(a=1)]", "content([f(a=1)])"},
            {"a second one unknown", "[now(), f(a=1)]", "now({})\ncontent(f(a=1)])"},
            {"without a name for the argument", "[search('a')]", "search()\ncontent('a')])"},
            {"not closed", "[now(a=1", R"(now({"a": ))"},
            {"a name with a dot", "[a.now()]", "content([a.now()])"},
            {"empty", "[]", "content([])"},
        });
  }
}

TEST_CASE("Python literals become JSON", "[parts]") {
  CheckCases(ToolOptions("pythonic"),
             {
                 {"words", Now("[True, False, None, true, null]"),
                  Made("[true, false, null, true, null]")},
                 {"numbers", Now("[0, -1, 1_000, .5, 5., -.5, +3, 1e5, 2.5e-3]"),
                  Made("[0, -1, 1000, 0.5, 5.0, -0.5, 3, 1e5, 2.5e-3]")},
                 {"quotes", Now("'say \"hi\"'"), Made(R"("say \"hi\"")")},
                 {"other quotes", Now("\"it's\""), Made(R"("it's")")},
                 {"escapes", Now(R"('a\n\t\'\"\\ \x41 \u00e9 \U0001F600 \d')"),
                  Made(R"("a\n\t'\"\\ A é 😀 \\d")")},
                 {"halves of a pair", Now(R"('\ud83d\ude00')"), Made(R"("\ud83d\ude00")")},
                 {"a line feed", Now("'a\nb'"), Made(R"("a\nb")")},
                 {"a continued line", Now("'a\\\nb'"), Made(R"("ab")")},
                 {"dictionary", Now("{'k': 1, \"l\": {'m': [None]}}"),
                  Made(R"({"k": 1, "l": {"m": [null]}})")},
                 {"tuple", Now("(1, 'x')"), Made(R"([1, "x"])")},
                 {"commas at the end", Now("[1, {'a': 2,}, ]"), Made(R"([1, {"a": 2}])")},
                 {"empty ones", Now("[[], {}, ()]"), Made("[[], {}, []]")},
                 {"brackets in strings", Now("[')', ']', '}']"), Made(R"x([")", "]", "}"])x")},
                 {"a word that is none", Now("maybe"), "now({\"a\": )\ncontent()])"},
                 {"a key that is no string", Now("{1: 2}"), "now({\"a\": {)\ncontent(1: 2})])"},
                 {"a set", Now("{'a', 'b'}"), "now({\"a\": {\"a\")\ncontent(, 'b'})])"},
                 {"a bracket of another kind", Now("[1}"), "now({\"a\": [1)\ncontent(})])"},
                 {"a number that is none", Now("1.2.3"), "now({\"a\": )\ncontent()])"},
             });
}

}  // namespace weft::router

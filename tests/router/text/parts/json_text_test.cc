#include "router/text/parts/json_text.h"

#include <catch2/catch.hpp>
#include <random>

#include "boost/json/parse.hpp"
#include "common/limits.h"
#include "router/text/parts/json_scanner.h"
#include "tests/support/seed.h"

namespace weft::router {
namespace {

bool IsJson(absl::string_view text) {
  JsonScanner scanner;
  bool ended = false;
  for (const char c : text) {
    if (ended) {
      if (!IsJsonSpace(c)) return false;
      continue;
    }
    const ValueStep step = scanner.Take(c);
    if (step == ValueStep::kBroken) return false;
    if (step == ValueStep::kEndBefore && !IsJsonSpace(c)) return false;
    ended = step != ValueStep::kMore;
  }
  return ended || scanner.CanEnd();
}

std::string Read(absl::string_view inside) {
  JsonStringReader reader;
  std::string text;
  for (const char c : inside) reader.Take(c, &text);
  reader.Finish(&text);
  return text;
}

}  // namespace

TEST_CASE("The scanner takes JSON and nothing else", "[parts]") {
  for (const std::string text : {"{}", "[]", "null", "true", "false", "0", "-0", "12", "1.5", "1e9",
                                 "1E-9", "-1.25e+2", "\"\"", " [1, 2 , {\"a\" : [ ] } ] ",
                                 "\"\\u00e9\\n\\\"\"", "{\"a\":{\"b\":null}}", "\"é😀\""}) {
    CAPTURE(text);
    CHECK(IsJson(text));
  }
  for (const std::string text :
       {"",           " ",           "{",    "]",         "01",    "1.",      ".5",       "+1",
        "-",          "1e",          "1e+",  "nul",       "nulll", "True",    "'a'",      "\"",
        "\"\\x\"",    "\"\\u00g0\"", "[1,]", "[,1]",      "{,}",   "{\"a\"}", "{\"a\":}", "{a:1}",
        "{\"a\":1,}", "[1 2]",       "[1}",  "{\"a\":1]", "1 2",   "[]]",     "{}{}"}) {
    CAPTURE(text);
    CHECK_FALSE(IsJson(text));
  }
  CHECK(
      IsJson(std::string(kToolArgumentsDepthMax, '[') + std::string(kToolArgumentsDepthMax, ']')));
  CHECK_FALSE(IsJson(std::string(kToolArgumentsDepthMax + 1, '[') +
                     std::string(kToolArgumentsDepthMax + 1, ']')));
}

TEST_CASE("The scanner agrees with Boost.JSON", "[parts]") {
  const uint64_t seed = test::Seed(7);
  std::mt19937_64 random(seed);
  const std::vector<std::string> words = {
      "{",  "}",  "[", "]",   ",", ":",    "\"a\"", "\"",      "\\n", "1",  "0",   "-2",
      ".5", "e3", " ", "nul", "l", "true", "x",     "\\u12ab", "é",   "\\", "\"b", "false"};
  size_t good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t left = 1 + random() % 8; left > 0; --left) text += words[random() % words.size()];
    boost::json::error_code error;
    boost::json::parse(text, error);
    CAPTURE(seed, text);
    REQUIRE(IsJson(text) == !error);
    good += error ? 0 : 1;
  }
  CHECK(good > 200);
}

TEST_CASE("Strings are read with their escapes", "[parts]") {
  CHECK(Read("plain é") == "plain é");
  CHECK(Read(R"(\n\t\"\\\/\b\f\r)") == "\n\t\"\\/\b\f\r");
  CHECK(Read(R"(\u00e9\u4eac)") == "é京");
  CHECK(Read(R"(\ud83d\ude00)") == "😀");
  CHECK(Read(R"(\ud83dx)") == "\xEF\xBF\xBDx");
  CHECK(Read(R"(\ud83d\n)") == "\xEF\xBF\xBD\n");
  CHECK(Read(R"(\ude00)") == "\xEF\xBF\xBD");
  CHECK(Read(R"(\ud83d\ud83d\ude00)") == "\xEF\xBF\xBD😀");
  CHECK(Read(R"(\ud83d)") == "\xEF\xBF\xBD");
}

TEST_CASE("Text becomes the inside of a JSON string", "[parts]") {
  std::string out;
  AppendJsonBytes(std::string("a\"\\\n\r\t\x01\x1f\0é", 11), &out);
  CHECK(out == "a\\\"\\\\\\n\\r\\t\\u0001\\u001f\\u0000é");
  CHECK(Read(out) == std::string("a\"\\\n\r\t\x01\x1f\0é", 11));
}

}  // namespace weft::router

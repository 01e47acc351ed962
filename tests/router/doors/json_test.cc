#include "router/doors/http/json.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

namespace weft::router {
namespace {

std::string Quoted(const std::string& text) {
  std::string out;
  AppendJsonString(text, &out);
  return out;
}

TEST_CASE("Strings are escaped, UTF-8 goes through, other bytes are replaced", "[router][json]") {
  CHECK(Quoted("") == "\"\"");
  CHECK(Quoted("a\"b\\c/d") == "\"a\\\"b\\\\c/d\"");
  CHECK(Quoted("\n\r\t\x01\x1f\x7f") == "\"\\n\\r\\t\\u0001\\u001f\x7f\"");
  CHECK(Quoted(std::string("a\0b", 3)) == "\"a\\u0000b\"");
  CHECK(Quoted("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80") ==
        "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
  const std::string r = "\xef\xbf\xbd";
  CHECK(Quoted("a\xff"
               "b") == "\"a" + r + "b\"");
  CHECK(Quoted("\xe2\x82") == "\"" + r + r + "\"");                  // cut short
  CHECK(Quoted("\xc0\x80") == "\"" + r + r + "\"");                  // overlong
  CHECK(Quoted("\xed\xa0\x80") == "\"" + r + r + r + "\"");          // surrogate
  CHECK(Quoted("\xf4\x90\x80\x80") == "\"" + r + r + r + r + "\"");  // above U+10FFFF
}

TEST_CASE("What the writer writes, the parser reads", "[router][json]") {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("a").BeginArray().Unsigned(1).Signed(-2).Float(0.1f).EndArray();
  json.Key("b").Null().Key("c").Bool(true).Key("d").BeginObject().EndObject();
  json.Key("e").Float(INFINITY).Key("f").Raw("[]").Key("g").String("x").EndObject();
  CHECK(text == R"({"a":[1,-2,0.1],"b":null,"c":true,"d":{},"e":null,"f":[],"g":"x"})");
  CHECK(ParseJson(text).ok());
}

TEST_CASE("The parser has limits and says where it stopped", "[router][json]") {
  CHECK(ParseJson("{}").ok());
  CHECK(ParseJson(" [1, 2.5, \"\\u00e4\"] ").ok());
  for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "nul", "1 2", "\"\xff\"", "\"\\ud800\"",
                          "// c\n1", "[1e999999999999]x"}) {
    INFO(bad);
    CHECK_FALSE(ParseJson(bad).ok());
  }
  std::string deep;
  for (size_t i = 0; i < kJsonDepthMax; ++i) deep += "[";
  std::string closed = deep;
  for (size_t i = 0; i < kJsonDepthMax; ++i) closed += "]";
  CHECK(ParseJson(closed).ok());
  CHECK_FALSE(ParseJson("[" + closed + "]").ok());
  CHECK(ParseJson("[1,x]").status().message() ==
        "the body is not valid JSON: syntax error at byte 3");
}

}  // namespace
}  // namespace weft::router

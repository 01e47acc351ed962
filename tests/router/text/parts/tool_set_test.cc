#include "router/text/parts/tool_set.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace weft::router {
namespace {

JsonTypes Of(const std::string& schema, const std::string& definitions = "{}") {
  const ToolSet tools({{"f", absl::StrCat("{\"properties\": {\"x\": ", schema,
                                          "}, \"$defs\": ", definitions, "}")}});
  return ToolSet::Types(tools.Find("f"), "x");
}

}  // namespace

TEST_CASE("A schema tells which types a parameter may have", "[parts]") {
  CHECK(Of(R"({"type": "string"})") == kJsonString);
  CHECK(Of(R"({"type": "integer"})") == kJsonOther);
  CHECK(Of(R"({"type": "boolean"})") == kJsonBoolean);
  CHECK(Of(R"({"type": ["string", "null"]})") == (kJsonString | kJsonNull));
  CHECK(Of(R"({"type": "string", "nullable": true})") == (kJsonString | kJsonNull));
  CHECK(Of(R"({"enum": ["a", "b"]})") == kJsonString);
  CHECK(Of(R"({"enum": ["a", 1, null]})") == (kJsonString | kJsonOther | kJsonNull));
  CHECK(Of(R"({"const": true})") == kJsonBoolean);
  CHECK(Of(R"({"anyOf": [{"type": "string"}, {"type": "number"}]})") == (kJsonString | kJsonOther));
  CHECK(Of(R"({"oneOf": [{"const": "a"}, {"const": "b"}]})") == kJsonString);
  CHECK(Of(R"({"allOf": [{"type": "string"}, {"minLength": 1}]})") == kJsonString);
  CHECK(Of(R"({"properties": {"a": {}}})") == kJsonOther);
  CHECK(Of(R"({"$ref": "#/$defs/T"})", R"({"T": {"type": "string"}})") == kJsonString);
  // What is not known, or is no schema, may be anything.
  CHECK(Of("{}") == kJsonAny);
  CHECK(Of("true") == kJsonAny);
  CHECK(Of("7") == kJsonAny);
  CHECK(Of(R"({"type": 7})") == kJsonAny);
  CHECK(Of(R"({"enum": []})") == kJsonAny);
  CHECK(Of(R"({"$ref": "#/$defs/None"})") == kJsonAny);
  CHECK(Of(R"({"$ref": "http://x/y"})") == kJsonAny);
}

TEST_CASE("References that go in circles end", "[parts]") {
  CHECK(Of(R"({"$ref": "#/$defs/A"})",
           R"({"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}})") == kJsonAny);
  CHECK(Of(R"({"$ref": "#/$defs/A"})",
           R"({"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}})") == kJsonAny);
}

TEST_CASE("A broken schema says nothing of its tool but the name", "[parts]") {
  for (const std::string schema : {"", "{", "[]", "{\"properties\": 7}", "null"}) {
    const ToolSet tools({{"f", schema}});
    REQUIRE(tools.Find("f") != nullptr);
    CHECK(ToolSet::Types(tools.Find("f"), "x") == kJsonAny);
    CHECK(tools.Find("g") == nullptr);
  }
}

}  // namespace weft::router

// Kinds of grammars: what they let through, and what is refused with which words.

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "grammar_fixture.h"
#include "router/errors.h"

namespace weft::router {
namespace {

using Kind = GrammarSpec::Kind;

GrammarEngine& Engine() {
  static const auto& tokenizer = *new std::unique_ptr<Tokenizer>(PlainTokens());
  static auto& engine = *new std::unique_ptr<GrammarEngine>(
      *GrammarEngine::Create(*tokenizer, {tokenizer->vocab_size() - 1}));
  return *engine;
}

// Whether the grammar lets exactly this text through; "<|tool|>" in it is the token of that name.
bool Fits(const GrammarSpec& spec, absl::string_view text) {
  auto grammar = Engine().Compile(spec, "grammar");
  INFO(grammar.status().ToString());
  REQUIRE(grammar.ok());
  auto matcher = *Engine().NewMatcher(*grammar);
  while (!text.empty()) {
    TokenId id = static_cast<uint8_t>(text.front());
    size_t length = 1;
    if (absl::StartsWith(text, "<|tool|>")) {
      id = 256;
      length = 8;
    }
    if (!*matcher->Consume(id)) return false;
    text.remove_prefix(length);
  }
  return *matcher->MayStop();
}

std::string Refusal(const GrammarSpec& spec) {
  const absl::Status status = Engine().Compile(spec, "response_format").status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorField(status).value_or("") == "response_format");
  return std::string(status.message());
}

std::string SchemaRefusal(const std::string& schema) { return Refusal(SchemaSpec(schema)); }

TEST_CASE("A choice is one of its texts, whole", "[grammar]") {
  const GrammarSpec spec = {Kind::kChoice, {"yes", "no", "yes, please", "a\"\\\n\u00e9/"}, false};
  CHECK(Fits(spec, "yes"));
  CHECK(Fits(spec, "yes, please"));
  CHECK(Fits(spec, "no"));
  CHECK(Fits(spec, "a\"\\\n\u00e9/"));
  CHECK_FALSE(Fits(spec, "yes,"));
  CHECK_FALSE(Fits(spec, ""));
  CHECK_FALSE(Fits(spec, "nono"));
  CHECK(Refusal({Kind::kChoice, {}, false}) != "");
}

TEST_CASE("A regular expression fits the whole answer", "[grammar]") {
  const GrammarSpec spec = TextSpec(Kind::kRegex, R"((\d{3}-)?[a-z/]+"?\s)");
  CHECK(Fits(spec, "123-a/b\n"));
  CHECK(Fits(spec, "ab\" "));
  CHECK_FALSE(Fits(spec, " ab\" "));
  CHECK_FALSE(Fits(spec, "ab"));
  CHECK(absl::StrContains(Refusal(TextSpec(Kind::kRegex, "a(?=b)")), "look-around"));
  CHECK(Refusal(TextSpec(Kind::kRegex, "(")) != "");
  CHECK(Refusal(TextSpec(Kind::kRegex, "")) != "");
}

TEST_CASE("Lark grammars have rules, terminals, tokens and schemas", "[grammar]") {
  const GrammarSpec spec = TextSpec(Kind::kLark,
                                    R"_(start: "call" "(" arg ("," " "? arg)* ")" | tool
arg: NAME | %json {"type": "integer", "minimum": 3} // a schema
tool: <|tool|> NAME
NAME: /[a-z]+/
)_");
  CHECK(Fits(spec, "call(a, 7,b)"));
  CHECK_FALSE(Fits(spec, "call(a, 2)"));
  CHECK(Fits(spec, "<|tool|>abc"));
  CHECK_FALSE(Fits(spec, "abc"));
  CHECK(Refusal(TextSpec(Kind::kLark, "start: nothing")) != "");
  CHECK(Refusal(TextSpec(Kind::kLark, "start: <|no|>")) != "");
  CHECK(absl::StrContains(Refusal(TextSpec(Kind::kLark, R"(start: %json {"not": {}})")), "not"));
  CHECK(absl::StrContains(Refusal(TextSpec(Kind::kLark, R"(start: "%json {}")")), "%json"));
  CHECK(absl::StrContains(Refusal(TextSpec(Kind::kLark, "start: %json {}\n%ignore \" \"\n")),
                          "%ignore"));
  CHECK(absl::StrContains(Refusal(TextSpec(Kind::kLark, "start: A\nA: /a*/ & /b/")), "&"));
  CHECK(absl::StrContains(Refusal(TextSpec(Kind::kLark, "start: A\nA: ~/a*/")), "~"));
  const GrammarSpec ignoring = TextSpec(Kind::kLark, "start: A+\nA: \"a\"\n%ignore \" \"\n");
  CHECK(Fits(ignoring, "a a"));
}

TEST_CASE("Any JSON object is an object", "[grammar]") {
  const GrammarSpec spec;
  CHECK(Fits(spec, R"({"a": [1, {"b": null}], "c": "\n\""})"));
  CHECK(Fits(spec, "{}"));
  CHECK(Fits(spec, "{\n  \"a\": 1\n}"));
  CHECK_FALSE(Fits(spec, "[]"));
  CHECK_FALSE(Fits(spec, "{}{}"));
}

TEST_CASE("Blanks between a JSON text's parts are bounded", "[grammar]") {
  const GrammarSpec spec;
  CHECK(Fits(spec, "{" + std::string(32, ' ') + "}"));
  CHECK_FALSE(Fits(spec, "{" + std::string(33, ' ') + "}"));
  CHECK(Fits(spec, "{\r\n" + std::string(64, '\t') + "}"));
  CHECK_FALSE(Fits(spec, "{\n\n}"));
  CHECK_FALSE(Fits(spec, " {}"));
  CHECK_FALSE(Fits(spec, "{} "));
  CHECK_FALSE(Fits(spec, "{}\n"));
}

TEST_CASE("Properties come in the schema's order, others behind them", "[grammar]") {
  const std::string schema = R"({"type":"object","properties":{"b":{"type":"integer"},)"
                             R"("a":{"type":"integer"}},"required":["a"]})";
  CHECK(Fits(SchemaSpec(schema), R"({"b":1,"a":2})"));
  CHECK(Fits(SchemaSpec(schema), R"({"a":2,"other":[]})"));
  CHECK_FALSE(Fits(SchemaSpec(schema), R"({"a":2,"b":1})"));
  // A listed name is no other name, however it is spelt.
  CHECK_FALSE(Fits(SchemaSpec(schema), "{\"a\":2,\"\\u0062\":\"x\"}"));
  GrammarSpec closed = SchemaSpec(schema);
  closed.closed_objects = true;
  CHECK_FALSE(Fits(closed, R"({"a":2,"other":[]})"));
  CHECK(Fits(closed, R"({"a":2})"));
}

TEST_CASE("Objects that are put together are never closed", "[grammar]") {
  GrammarSpec spec = SchemaSpec(R"({"allOf":[{"type":"object","properties":{"a":{"const":1}}},)"
                                R"({"properties":{"b":{"const":2}},"required":["b"]}]})");
  spec.closed_objects = true;
  CHECK(Fits(spec, R"({"a":1,"b":2})"));
}

TEST_CASE("References lead anywhere in the schema", "[grammar]") {
  const std::string text = R"({"properties":{"x":{"$ref":"#/$defs/a~1b%20c"},"y":{"$ref":"#here"},)"
                           R"("z":{"$ref":"http://example.com/z"},"w":{"$ref":"#/$defs/loop"}},)"
                           R"("type":"object","$defs":{"a/b c":{"const":1},)"
                           R"("p":{"$anchor":"here","const":2},"q":{"$id":"http://example.com/z",)"
                           R"("const":3},"loop":{"type":"array","items":{"$ref":"#/$defs/loop"}},)"
                           R"("unused":{"not":{}}}})";
  CHECK(Fits(SchemaSpec(text), R"({"x":1,"y":2,"z":3,"w":[[],[[]]]})"));
  CHECK_FALSE(Fits(SchemaSpec(text), R"({"x":2})"));
  CHECK(absl::StrContains(SchemaRefusal(R"({"$ref":"#/nowhere"})"), "#/nowhere"));
  CHECK(absl::StrContains(SchemaRefusal(R"({"$ref":"other.json#/a"})"), "other.json"));
  CHECK(SchemaRefusal(R"({"$ref":"#"})") != "");
}

TEST_CASE("Dependencies hold", "[grammar]") {
  const GrammarSpec spec =
      SchemaSpec(R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},)"
                 R"("dependentRequired":{"a":["b"]},"additionalProperties":false})");
  CHECK(Fits(spec, R"({"a":1,"b":2})"));
  CHECK(Fits(spec, R"({"b":2})"));
  CHECK(Fits(spec, R"({})"));
  CHECK_FALSE(Fits(spec, R"({"a":1})"));
}

TEST_CASE("Exactly one of alternatives", "[grammar]") {
  const GrammarSpec keys =
      SchemaSpec(R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},)"
                 R"("oneOf":[{"required":["a"]},{"required":["b"]}]})");
  CHECK(Fits(keys, R"({"a":1})"));
  CHECK(Fits(keys, R"({"b":2})"));
  CHECK_FALSE(Fits(keys, R"({"a":1,"b":2})"));
  CHECK_FALSE(Fits(keys, R"({})"));
  const GrammarSpec numbers = SchemaSpec(R"({"oneOf":[{"const":1},{"enum":[2,3]}]})");
  CHECK(Fits(numbers, "3"));
  CHECK_FALSE(Fits(numbers, "4"));
  CHECK(
      absl::StrContains(SchemaRefusal(R"({"oneOf":[{"type":"integer"},{"minimum":3}]})"), "oneOf"));
  CHECK(absl::StrContains(SchemaRefusal(R"({"oneOf":[{"const":1},{"enum":[1,2]}]})"), "oneOf"));
}

TEST_CASE("Dates are those of the calendar", "[grammar]") {
  const GrammarSpec spec = SchemaSpec(R"({"type":"string","format":"date"})");
  CHECK(Fits(spec, "\"2024-02-29\""));
  CHECK(Fits(spec, "\"2000-02-29\""));
  CHECK(Fits(spec, "\"1999-12-31\""));
  CHECK_FALSE(Fits(spec, "\"2023-02-29\""));
  CHECK_FALSE(Fits(spec, "\"1900-02-29\""));
  CHECK_FALSE(Fits(spec, "\"2023-04-31\""));
  CHECK_FALSE(Fits(spec, "\"2023-13-01\""));
}

TEST_CASE("A keyword that is not kept is refused by its name", "[grammar]") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not":{"type":"string"}})", "#: the keyword not"},
      {R"({"properties":{"a":{"if":{},"then":{}}}})", "#/properties/a: the keyword if"},
      {R"({"contains":{"type":"string"}})", "contains"},
      {R"({"items":{"uniqueItems":true}})", "#/items: the keyword uniqueItems"},
      {R"({"unevaluatedProperties":false})", "unevaluatedProperties"},
      {R"({"$dynamicRef":"#a"})", "$dynamicRef"},
      {R"({"propertyNames":{"maxLength":3},"properties":{}})", "propertyNames"},
      {R"({"type":"string","format":"color"})", "#/format: the format color"},
      {R"({"type":"text"})", "#/type: expected some of null"},
      {R"({"minLength":-1})", "#/minLength"},
      {R"({"minLength":"3"})", "#/minLength"},
      {R"({"multipleOf":0})", "#/multipleOf"},
      {R"({"multipleOf":99999989})", "#/multipleOf"},
      {R"({"required":true})", "#/required"},
      {R"({"properties":[]})", "#/properties"},
      {R"({"items":7})", "#/items"},
      {R"({"pattern":"(?=a)b"})", "look-around"},
      {R"({"const":9007199254740993})", "2^53"},
      {R"({"x-guidance":{"lenient":true}})", "x-guidance"},
      {R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":2})", "roperties"},
      {"false", "false"},
      {"7", "is no schema"},
      {"{", "is no JSON"},
  };
  for (const auto& [schema, words] : cases) {
    INFO(schema);
    const std::string refusal = SchemaRefusal(schema);
    INFO(refusal);
    CHECK(absl::StrContains(refusal, words));
    CHECK(refusal.size() < 600);
  }
}

TEST_CASE("Keywords that say nothing are taken", "[grammar]") {
  const GrammarSpec spec = SchemaSpec(
      R"({"$schema":"http://json-schema.org/draft-07/schema#","title":"t","description":"d",)"
      R"("type":"array","uniqueItems":false,"if":{},"items":{"type":"integer","format":"int64",)"
      R"("nullable":true},"examples":[[1]],"default":[],"deprecated":true,"x-own":{"not":1}})");
  CHECK(Fits(spec, "[1,2]"));
  CHECK_FALSE(Fits(spec, "[null]"));
}

TEST_CASE("Structural tags begin behind their triggers", "[grammar]") {
  const GrammarSpec spec = TextSpec(
      Kind::kStructuralTag,
      R"({"type":"structural_tag","structures":[{"begin":"<f=get>","schema":{"type":"object",)"
      R"("properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},)"
      R"("end":"</f>"},{"begin":"<f=put>","schema":{"type":"null"},"end":"</f>"}],)"
      R"("triggers":["<f="]})");
  CHECK(Fits(spec, "plain text with < and <f"));
  CHECK(Fits(spec, ""));
  CHECK(Fits(spec, "I call <f=get>{\"a\":1}</f> and <f=put>null</f>, done"));
  CHECK_FALSE(Fits(spec, "<f=get>{\"a\":1}"));
  CHECK_FALSE(Fits(spec, "<f=other>"));
  CHECK_FALSE(Fits(spec, "<f=get>{\"b\":1}</f>"));
}

TEST_CASE("Structural tags of special tokens and of other forms", "[grammar]") {
  const GrammarSpec spec = TextSpec(
      Kind::kStructuralTag,
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<|tool|>"],)"
      R"("at_least_one":true,"stop_after_first":true,"tags":[{"type":"tag","begin":"<|tool|>x:",)"
      R"("content":{"type":"regex","pattern":"[0-9]+"},"end":";"}]}})");
  CHECK(Fits(spec, "some text <|tool|>x:12;"));
  CHECK_FALSE(Fits(spec, "some text"));
  CHECK_FALSE(Fits(spec, "<|tool|>x:12;more"));
  const GrammarSpec sequence = TextSpec(
      Kind::kStructuralTag,
      R"({"format":{"type":"sequence","elements":[{"type":"const_string","value":"a<|tool|>b"},)"
      R"({"type":"or","elements":[{"type":"const_string","value":"1"},)"
      R"({"type":"json_schema","json_schema":{"enum":[[],{}]}}]},)"
      R"({"type":"tag","begin":"<t>","content":{"type":"any_text"},"end":"</t>"}]}})");
  CHECK(Fits(sequence, "a<|tool|>b1<t>any < text</t>"));
  CHECK(Fits(sequence, "a<|tool|>b[]<t></t>"));
  CHECK_FALSE(Fits(sequence, "a<|tool|>b2<t></t>"));
  CHECK_FALSE(Fits(sequence, "a<|tool|>b1<t>any"));
  CHECK_FALSE(Fits(sequence, "a<|tool|>b1<t>any</t> more"));
  const GrammarSpec separated = TextSpec(
      Kind::kStructuralTag,
      R"({"format":{"type":"tags_with_separator","separator":",","at_least_one":true,"tags":[)"
      R"({"begin":"<","content":{"type":"json_schema","json_schema":{"type":"integer"}},)"
      R"("end":">"}]}})");
  CHECK(Fits(separated, "<1>,<2>"));
  CHECK_FALSE(Fits(separated, ""));
  CHECK_FALSE(Fits(separated, "<1><2>"));
  const auto refused = [](const char* text) {
    return Refusal(TextSpec(Kind::kStructuralTag, text));
  };
  CHECK(absl::StrContains(refused(R"({"format":{"type":"other"}})"), "other"));
  CHECK(absl::StrContains(
      refused(R"({"structures":[{"begin":"a","schema":{},"end":"b"}],"triggers":["x"]})"), "x"));
  CHECK(refused("{}") != "");
  CHECK(refused("[") != "");
}

}  // namespace
}  // namespace weft::router

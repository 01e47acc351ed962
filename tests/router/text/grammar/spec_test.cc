#include "router/text/grammar/spec.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "router/errors.h"

namespace weft::router {
namespace {

using Kind = GrammarSpec::Kind;

boost::json::value Json(const char* text) { return boost::json::parse(text); }

// "kind text|text closed", or the error's field.
std::string Told(const absl::StatusOr<GrammarSpec>& spec) {
  if (absl::IsNotFound(spec.status())) return "none";
  if (!spec.ok()) return "error in " + ErrorField(spec.status()).value_or("nothing");
  std::string out(GrammarKindName(spec->kind));
  for (const std::string& text : spec->texts) out += " " + text;
  return out + (spec->closed_objects ? " closed" : "");
}

std::string Tgi(const char* text) { return Told(GrammarFromTgi(Json(text), "grammar")); }
std::string Format(const char* text) {
  return Told(GrammarFromResponseFormat(Json(text), "response_format"));
}
std::string Outputs(const char* text) {
  return Told(GrammarFromStructuredOutputs(Json(text), "structured_outputs"));
}
std::string Guided(const char* name, const char* text) {
  return Told(GrammarFromGuided(name, Json(text)));
}

TEST_CASE("TGI's grammar", "[grammar]") {
  CHECK(Tgi(R"({"type":"json","value":{"a":1}})") == R"(json_schema {"a":1} closed)");
  CHECK(Tgi(R"({"type":"json","value":"{\"a\": 1}"})") == R"(json_schema {"a": 1} closed)");
  CHECK(Tgi(R"({"type":"json_object","value":{"a":1}})") == R"(json_schema {"a":1} closed)");
  CHECK(Tgi(R"({"type":"json_object"})") == "json_object");
  CHECK(Tgi(R"({"type":"json_schema","value":{"name":"n","schema":{"a":1}}})") ==
        R"(json_schema {"a":1} closed)");
  CHECK(Tgi(R"({"type":"regex","value":"[a-z]"})") == "regex [a-z]");
  CHECK(Tgi(R"({"type":"regex","value":""})") == "error in grammar.value");
  CHECK(Tgi(R"({"type":"regex"})") == "error in grammar.value");
  CHECK(Tgi(R"({"type":"json","value":7})") == "error in grammar.value");
  CHECK(Tgi(R"({"type":"lark","value":"x"})") == "error in grammar.type");
  CHECK(Tgi(R"({"value":"x"})") == "error in grammar.type");
  CHECK(Tgi("7") == "error in grammar");
}

TEST_CASE("OpenAI's response_format", "[grammar]") {
  CHECK(Format(R"({"type":"text"})") == "none");
  CHECK(Format(R"({"type":"json_object"})") == "json_object");
  CHECK(Format(R"({"type":"json_schema","json_schema":{"name":"n","schema":{"a":1}}})") ==
        R"(json_schema {"a":1})");
  CHECK(Format(R"({"type":"json_schema","json_schema":{"schema":{"a":1},"strict":true}})") ==
        R"(json_schema {"a":1} closed)");
  CHECK(Format(R"({"type":"json_schema","name":"n","schema":{"a":1},"strict":null})") ==
        R"(json_schema {"a":1})");
  CHECK(Format(R"({"type":"structural_tag","format":{}})") ==
        R"(structural_tag {"type":"structural_tag","format":{}})");
  CHECK(Format(R"({"type":"json_schema","json_schema":{"name":"n"}})") ==
        "error in response_format.json_schema.schema");
  CHECK(Format(R"({"type":"json_schema","json_schema":{"schema":{},"strict":1}})") ==
        "error in response_format.json_schema.strict");
  CHECK(Format(R"({"type":"json_schema","json_schema":[]})") ==
        "error in response_format.json_schema");
  CHECK(Format(R"({"type":"yaml","value":"x"})") == "error in response_format.type");
  CHECK(Format(R"({"type":"yaml"})") == "error in response_format.type");
  CHECK(Format(R"("json")") == "error in response_format");
}

TEST_CASE("TGI's grammars in a response_format", "[grammar]") {
  CHECK(Format(R"({"type":"json","value":{"a":1}})") == R"(json_schema {"a":1} closed)");
  CHECK(Format(R"({"type":"json_object","value":{"a":1}})") == R"(json_schema {"a":1} closed)");
  CHECK(Format(R"({"type":"json_object","value":null})") == "json_object");
  CHECK(Format(R"({"type":"regex","value":"[a-z]"})") == "regex [a-z]");
  CHECK(Format(R"({"type":"regex"})") == "error in response_format.value");
}

TEST_CASE("vLLM's structured_outputs and the fields before it", "[grammar]") {
  CHECK(Outputs(R"({"json":{"a":1}})") == R"(json_schema {"a":1})");
  CHECK(Outputs(R"({"json_object":true})") == "json_object");
  CHECK(Outputs(R"({"json_object":false,"regex":"a"})") == "regex a");
  CHECK(Outputs(R"({"choice":["a","b"]})") == "choice a b");
  CHECK(Outputs(R"({"grammar":"start: \"a\"","regex":null})") == "lark start: \"a\"");
  CHECK(Outputs(R"({"structural_tag":"{}"})") == "structural_tag {}");
  CHECK(Outputs(R"({"disable_any_whitespace":true})") == "none");
  CHECK(Outputs(R"({"regex":"a","choice":["b"]})") == "error in structured_outputs");
  CHECK(Outputs(R"({"choice":[]})") == "error in structured_outputs.choice");
  CHECK(Outputs(R"({"choice":["a",1]})") == "error in structured_outputs.choice");
  CHECK(Outputs("[]") == "error in structured_outputs");
  CHECK(Guided("guided_json", R"("{}")") == "json_schema {}");
  CHECK(Guided("guided_regex", R"("a+")") == "regex a+");
  CHECK(Guided("guided_choice", R"(["x"])") == "choice x");
  CHECK(Guided("guided_grammar", R"("start: \"a\"")") == "lark start: \"a\"");
  CHECK(Guided("guided_regex", "7") == "error in guided_regex");
  CHECK(Guided("guided_other", "7") == "error in guided_other");
}

}  // namespace
}  // namespace weft::router

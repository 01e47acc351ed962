// How the fields of three APIs say what an answer has to fit (router/grammar_spec.h). Pure
// functions and values; any thread. Nothing is compiled here (engine.h).

#pragma once

#include <boost/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/grammar_spec.h"

namespace weft::router {

// A stable word for logs and metrics: json_schema, json_object, lark, regex, choice,
// structural_tag.
absl::string_view GrammarKindName(GrammarSpec::Kind kind);

// In all of these, INVALID_ARGUMENT names the field under `field`: "response_format.json_schema".

// TGI's `grammar`: {"type": "json" | "json_schema" | "regex" | "json_object", "value": ...}. A
// schema may also be a string that holds it; objects are closed, as TGI makes them. TGI's
// json_schema wraps the schema as OpenAI does: {"name": ..., "schema": ...}.
absl::StatusOr<GrammarSpec> GrammarFromTgi(const boost::json::value& value,
                                           absl::string_view field);

// OpenAI's response_format: {"type": "text" | "json_object" | "json_schema" | "structural_tag"},
// also as the Responses API flattens it (name, schema and strict beside type). Objects are closed
// when `strict` is true. NOT_FOUND for "text": there is no grammar.
absl::StatusOr<GrammarSpec> GrammarFromResponseFormat(const boost::json::value& value,
                                                      absl::string_view field);

// vLLM's structured_outputs: an object with one of json, json_object, regex, choice, grammar,
// structural_tag. NOT_FOUND when it has none of them.
absl::StatusOr<GrammarSpec> GrammarFromStructuredOutputs(const boost::json::value& value,
                                                         absl::string_view field);

// One of vLLM's older fields, by its name: guided_json, guided_regex, guided_choice,
// guided_grammar; structural_tag.
absl::StatusOr<GrammarSpec> GrammarFromGuided(absl::string_view name,
                                              const boost::json::value& value);

}  // namespace weft::router

// The fields by which HTTP requests ask for an answer that fits a grammar. Pure functions over a
// FieldReader.

#pragma once

#include "absl/strings/string_view.h"
#include "boost/json/value.hpp"
#include "router/doors/http/fields.h"
#include "router/request.h"

namespace weft::router {

// OpenAI's response_format and vLLM's structured_outputs, guided_json, guided_regex, guided_choice,
// guided_grammar and structural_tag; at most one of them.
void ReadOpenAiGrammar(FieldReader& fields, GenerateInput* input);

// Of these all but response_format.
void ReadVllmGrammar(FieldReader& fields, GenerateInput* input);

// What says the same as response_format where another API has it, under the name of its field.
void ReadResponseFormat(const boost::json::value& format, absl::string_view name,
                        FieldReader& fields, GenerateInput* input);

// TGI's grammar.
void ReadTgiGrammar(FieldReader& fields, GenerateInput* input);

}  // namespace weft::router

// The fields by which HTTP requests ask for an answer that fits a grammar. Pure functions over a
// FieldReader.

#pragma once

#include "boost/json/value.hpp"
#include "router/doors/http/fields.h"
#include "router/request.h"

namespace weft::router {

// OpenAI's response_format and vLLM's structured_outputs, guided_json, guided_regex, guided_choice,
// guided_grammar and structural_tag; at most one of them.
void ReadOpenAiGrammar(FieldReader& fields, GenerateInput* input);

// Of these all but response_format.
void ReadVllmGrammar(FieldReader& fields, GenerateInput* input);

// text.format of OpenAI's Responses, which says the same as response_format; errors name it so.
void ReadTextFormat(const boost::json::value& format, FieldReader& fields, GenerateInput* input);

// TGI's grammar.
void ReadTgiGrammar(FieldReader& fields, GenerateInput* input);

}  // namespace weft::router

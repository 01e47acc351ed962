// The fields by which HTTP requests ask for an answer that fits a grammar. Pure functions over a
// FieldReader.

#pragma once

#include "router/doors/http/fields.h"
#include "router/request.h"

namespace weft::router {

// OpenAI's response_format and vLLM's structured_outputs, guided_json, guided_regex, guided_choice,
// guided_grammar and structural_tag; at most one of them.
void ReadOpenAiGrammar(FieldReader& fields, GenerateInput* input);

// TGI's grammar.
void ReadTgiGrammar(FieldReader& fields, GenerateInput* input);

}  // namespace weft::router

#include "router/doors/http/grammar.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/text/grammar/spec.h"

namespace weft::router {
namespace {

void Take(FieldReader& fields, absl::string_view name, absl::StatusOr<GrammarSpec> spec,
          GenerateInput* input) {
  // There is a field, and no grammar in it.
  if (absl::IsNotFound(spec.status())) return;
  if (!spec.ok()) return fields.Fail(spec.status());
  if (input->grammar.has_value()) {
    fields.Fail(name, absl::StrCat("stands beside ", input->grammar_field,
                                   ": an answer has one grammar at most"));
    return;
  }
  input->grammar = *std::move(spec);
  input->grammar_field = std::string(name);
}

}  // namespace

void ReadOpenAiGrammar(FieldReader& fields, GenerateInput* input) {
  if (const boost::json::value* value = fields.Value("response_format")) {
    ReadResponseFormat(*value, "response_format", fields, input);
  }
  ReadVllmGrammar(fields, input);
}

void ReadVllmGrammar(FieldReader& fields, GenerateInput* input) {
  if (const boost::json::value* value = fields.Value("structured_outputs")) {
    Take(fields, "structured_outputs", GrammarFromStructuredOutputs(*value, "structured_outputs"),
         input);
  }
  for (const char* name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag"}) {
    const boost::json::value* value = fields.Value(name);
    if (value != nullptr) Take(fields, name, GrammarFromGuided(name, *value), input);
  }
}

void ReadResponseFormat(const boost::json::value& format, absl::string_view name,
                        FieldReader& fields, GenerateInput* input) {
  Take(fields, name, GrammarFromResponseFormat(format, name), input);
}

void ReadTgiGrammar(FieldReader& fields, GenerateInput* input) {
  const boost::json::value* value = fields.Value("grammar");
  if (value == nullptr) return;
  Take(fields, "grammar", GrammarFromTgi(*value, absl::StrCat(fields.path(), "grammar")), input);
}

}  // namespace weft::router

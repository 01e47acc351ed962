// What a request wants of its answer's parts, in the model's own terms: the grammar that calls of
// tools have to fit, and where in the answer a grammar begins when the model reasons first. Pure;
// any thread.

#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/answer_parts.h"
#include "router/request.h"
#include "router/text/grammar/engine.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// Makes `input->grammar` that of the calls when input->parts asks for one. A grammar that is there
// already is of the content: beside calls that the model may make or not it stays the content's (a
// JSON schema alone), where calls are required there is no content. INVALID_ARGUMENT names the
// field: "tools" or the grammar's own.
absl::Status AddToolGrammar(const Tokenizer& tokenizer, GenerateInput* input);

// Where the grammar of an answer begins whose prompt ends like this; nothing: at once.
std::optional<GrammarEngine::Mark> ReasoningMark(const Tokenizer& tokenizer, const PartsSpec& parts,
                                                 bool tool_grammar, absl::string_view prompt);

}  // namespace weft::router

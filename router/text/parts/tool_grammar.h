// The grammar of an answer that has to call tools, in the format that the parser of the same name
// reads: for llguidance, in its dialect of Lark (docs/syntax.md of that project). The format's
// frame is spelled out as the model was trained to write it; arguments are %json with the tool's
// schema. Pure.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/text/parts/tool_set.h"

namespace weft::router {

struct ToolGrammarOptions {
  enum class Choice : uint8_t {
    // Calls and nothing else.
    kRequired,
    // One call of `name`.
    kNamed,
    // Text, calls, or text and then calls; what begins as a call is one to the end.
    kAuto,
  };

  Choice choice = Choice::kRequired;
  std::string name;
  // Of kAuto: a JSON Schema that the text fits where the answer is no call; empty = any text.
  std::string content_schema;
  // Several calls may follow each other; of kNamed and of formats whose calls end the answer one
  // may.
  bool parallel_calls = true;
  // The id of a control token by how it is written, where the vocabulary has it as one: it is then
  // written <[id]>, other marks as text. Without the function all marks are text.
  std::function<std::optional<uint32_t>(absl::string_view)> control_token;
};

// INVALID_ARGUMENT for an unknown parser, no tools, a name that none of them has, or a schema that
// is no JSON object; it names the tool.
absl::StatusOr<std::string> ToolGrammar(absl::string_view tool_parser,
                                        const std::vector<ToolSpec>& tools,
                                        const ToolGrammarOptions& options);

}  // namespace weft::router

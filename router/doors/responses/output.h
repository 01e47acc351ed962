// One item of an answer of /v1/responses (a message, reasoning, a call of a function) and its JSON,
// in the shapes that the openai package for Python parses (its types/responses). Made by the
// formatter of an answer, which owns it; plain data and pure functions.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "router/doors/http/json.h"

namespace weft::router {

struct OutputItem {
  enum class Kind : uint8_t { kMessage, kReasoning, kCall };

  Kind kind = Kind::kMessage;
  std::string id;
  // Of a message or reasoning its text; of a call its arguments, JSON.
  std::string text;
  // Of a message: JSON objects with commas between; empty without log-probabilities.
  std::string logprobs;
  // Of a call.
  std::string call_id;
  std::string name;
  // in_progress, completed or incomplete.
  absl::string_view status = "in_progress";
};

// An item that is in progress is written without what it holds.
void WriteOutputItem(const OutputItem& item, JsonWriter* json);
// The one part of a message or of reasoning. REQUIRES: no call.
void WriteOutputPart(const OutputItem& item, JsonWriter* json);

}  // namespace weft::router

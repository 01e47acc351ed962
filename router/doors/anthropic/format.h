// Anthropic's answers of /v1/messages, whole or as events, in the shapes that the anthropic package
// for Python parses (its types/message.py and types/raw_message_*_event.py).

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "router/answer_parts.h"
#include "router/doors/http/generate.h"

namespace weft::router {

struct AnthropicFormat {
  bool stream = false;
  // Reasoning is given as blocks of thinking.
  bool thinking = true;
  // What is told apart; null: all is text.
  std::shared_ptr<const PartsSpec> parts;
  std::string request_id;
  std::string model;
};

// The same error with the engine's field names in Anthropic's words.
absl::Status NamedForAnthropic(const absl::Status& status);

std::unique_ptr<ResponseFormatter> NewAnthropicFormatter(AnthropicFormat format);

}  // namespace weft::router

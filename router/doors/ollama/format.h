// Ollama's answers of /api/chat and /api/generate, whole or as lines of JSON, in the shapes that
// the ollama package for Python parses.

#pragma once

#include <memory>
#include <string>

#include "router/answer_parts.h"
#include "router/doors/http/generate.h"

namespace weft::router {

struct OllamaFormat {
  bool chat = false;
  bool stream = true;
  // What is told apart; null: all is text.
  std::shared_ptr<const PartsSpec> parts;
  std::string model;
};

std::unique_ptr<ResponseFormatter> NewOllamaFormatter(OllamaFormat format);

}  // namespace weft::router

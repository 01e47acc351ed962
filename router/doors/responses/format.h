// OpenAI's answers of /v1/responses, whole or as events, in the shapes that the openai package for
// Python parses (its types/responses). A stream's items are the whole answer's.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "router/answer_parts.h"
#include "router/doors/http/generate.h"

namespace weft::router {

struct ResponsesFormat {
  bool stream = false;
  // Reasoning that is told apart is given to the client, too.
  bool reasoning = true;
  bool logprobs = false;
  // What is told apart; null: all is text.
  std::shared_ptr<const PartsSpec> parts;
  std::string request_id;
  std::string model;
  int64_t created_unix_s = 0;
  // Members of the answer that say what was asked for (echo.h).
  std::string echo;
};

std::unique_ptr<ResponseFormatter> NewResponsesFormatter(ResponsesFormat format);

}  // namespace weft::router

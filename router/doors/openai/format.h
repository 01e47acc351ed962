// OpenAI's answers of /v1/chat/completions and /v1/completions, whole or as chunks, in the shapes
// that the openai Python package parses (its types/chat and types/completion files).

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "router/doors/http/generate.h"

namespace weft::router {

struct OpenAiFormat {
  bool chat = false;
  bool stream = false;
  // stream_options.include_usage: one more chunk with the counts and no choices.
  bool usage = false;
  // stream_options.continuous_usage_stats: the counts in every chunk.
  bool usage_in_every_chunk = false;
  // return_token_ids: the ids in every chunk, and in the first one how to go on elsewhere.
  bool token_ids = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  std::string request_id;
  std::string model;
  int64_t created_unix_s = 0;
};

std::unique_ptr<ResponseFormatter> NewOpenAiFormatter(OpenAiFormat format);

}  // namespace weft::router

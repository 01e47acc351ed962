// OpenAI's answers of /v1/chat/completions and /v1/completions, whole or as chunks, in the shapes
// that the openai Python package parses (its types/chat and types/completion files).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "router/answer_parts.h"
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
  // How many prompts, answers that are given back to each, and answers that are made of each: the
  // same number in streams.
  uint32_t prompts = 1;
  uint32_t choices = 1;
  uint32_t best_of = 1;
  // What of a chat's answers is told apart; null: nothing.
  std::shared_ptr<const PartsSpec> parts;
  // Reasoning that is told apart is given to the client, too.
  bool reasoning = true;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  // Of whole answers: `logprobs` begin with the prompt's, as the text does; and vLLM's
  // prompt_logprobs, with so many of the most likely tokens.
  bool echo_logprobs = false;
  std::optional<uint32_t> prompt_logprobs;
  std::string request_id;
  std::string model;
  int64_t created_unix_s = 0;
};

std::unique_ptr<ResponseFormatter> NewOpenAiFormatter(OpenAiFormat format);

}  // namespace weft::router

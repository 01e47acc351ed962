// One request type for all doors: gRPC, TGI and OpenAI routes are thin translators between their
// wire and this type, so that all give the same tokens for the same seed. Made by a door's thread
// and handed over whole; plain data. What comes back is in router/answer.h.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/limits.h"
#include "router/answer_parts.h"
#include "router/chat_prompt.h"
#include "router/grammar_spec.h"

namespace weft::router {

// Sampling parameters with every default applied. Units and ranges as in
// proto/weft/v1/generation.proto.
struct SamplingParams {
  float temperature = 1.0f;  // below kTemperatureMin = greedy
  uint32_t top_k = 0;        // 0 = off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  // Ascending ids, each once.
  std::vector<std::pair<TokenId, float>> logit_bias;
  // None of `held_ids`, which end the answer, is sampled before it has so many tokens. Text in
  // fills the ids in: ascending, each once.
  uint32_t min_tokens = 0;
  std::vector<TokenId> held_ids;
  // Ids outside of the answer's mask are less likely by this logit; 0: they are not sampled.
  float mask_penalty = 0.0f;
  bool logprobs = false;
  uint32_t top_logprobs = 0;

  // The shard must know all ids of the sequence.
  bool needs_penalty_ids() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

// Bytes of a fingerprint (engine/fingerprint.h).
inline constexpr size_t kFingerprintBytesMax = 128;

// Ascending, each once.
inline void SortIds(std::vector<TokenId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

// What a client has had of an answer whose stream broke (proto/weft/v1/generation.proto, Resume).
struct ResumeInput {
  std::vector<TokenId> output_ids;
  // What these came from.
  std::string fingerprint;
};

// What a door understood of a request. Every field has been range-checked by the door, except what
// only the model decides (prompt length, ids below the vocabulary size).
struct GenerateInput {
  // The client's own name for the request; several may have the same. Empty = none.
  std::string correlation_id;
  // The client's trace context (W3C traceparent) as it came; empty = none.
  std::string traceparent;
  // Text, token ids or a conversation.
  std::variant<std::string, std::vector<TokenId>, ChatPrompt> prompt;
  bool add_special_tokens = true;
  std::optional<uint32_t> truncate_prompt_tokens;
  SamplingParams sampling;
  // The prompt's own tokens are scored (router/prompt_scores.h), each with so many of the most
  // likely ones; and how many numbers that may be together.
  std::optional<uint32_t> prompt_logprobs;
  uint32_t prompt_scores_max = kPromptScoresMax;
  // Without a seed one is drawn.
  std::optional<uint64_t> seed;
  // Without a limit: what the context leaves. 0: no token is wanted, the prompt is read all the
  // same.
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stop_sequences;
  // Ids that end the answer as the model's own do, whatever ignore_eos says. Ascending, each once.
  std::vector<TokenId> stop_token_ids;
  // The stop string, or the text of the stop token, is part of the answer.
  bool include_stop_sequence = false;
  bool ignore_eos = false;
  // The answer's tokens are of these alone; empty = any may be. Ascending, each once.
  std::vector<TokenId> allowed_token_ids;
  // Texts that the answer does not have, as one token or several.
  std::vector<std::string> bad_words;
  // Tokens of the green list of the token before them are more likely (text/constraints/
  // watermark.h).
  bool watermark = false;
  // What the answer fits, and what its door calls the field that says so.
  std::optional<GrammarSpec> grammar;
  std::string grammar_field;
  // What is known of the answer's parts. Where they are told apart control tokens are part of the
  // text, but for those that end it, since they mark the parts. Null: the text is all there is.
  std::shared_ptr<const PartsSpec> parts;
  // Control tokens have no part in the text.
  bool skip_special_tokens = true;
  // The first text event begins with the prompt's text.
  bool echo_prompt = false;
  // Only requests of the tenant with the same one share cached prefixes; empty = all without one.
  std::string cache_salt;
  // The answer goes on behind this; its seed is `seed`.
  std::optional<ResumeInput> resume;
  // Empty = the tenant's own.
  std::optional<int32_t> priority;
  // Monotonic microseconds (Clock::NowUs); 0 = none.
  int64_t deadline_us = 0;
};

// How an answer became complete.
enum class FinishReason : uint8_t {
  kLength,
  kEosToken,
  kStopSequence,
  // One of the request's own stop_token_ids.
  kStopToken,
};

// Why a request ended before its time.
enum class CancelReason : uint8_t {
  kNone,
  kClientGone,
  kAdmin,
  kDeadline,
  kQueueTimeout,
  kSlowReader,
  // A stop string was found: the answer is complete, its sequence is not wanted any more.
  kStopMatched,
};

}  // namespace weft::router

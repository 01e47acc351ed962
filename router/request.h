// One request type for all doors: gRPC, TGI and OpenAI routes are thin translators between their
// wire and this type, so that all give the same tokens for the same seed. Made by a door's thread
// and handed over whole; plain data. What comes back is in router/answer.h.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/ids.h"

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
  bool logprobs = false;
  uint32_t top_logprobs = 0;

  // The shard must know all ids of the sequence.
  bool needs_penalty_ids() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatPrompt {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
};

// Bytes of a fingerprint (engine/fingerprint.h).
inline constexpr size_t kFingerprintBytesMax = 128;

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
  // Without a seed one is drawn.
  std::optional<uint64_t> seed;
  // Without a limit: what the context leaves.
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stop_sequences;
  bool include_stop_sequence = false;
  bool ignore_eos = false;
  // The first text event begins with the prompt's text.
  bool echo_prompt = false;
  // The answer goes on behind this; its seed is `seed`.
  std::optional<ResumeInput> resume;
  // Empty = the tenant's own.
  std::optional<int32_t> priority;
  // Monotonic microseconds (Clock::NowUs); 0 = none.
  int64_t deadline_us = 0;
};

// How an answer became complete.
enum class FinishReason : uint8_t { kLength, kEosToken, kStopSequence };

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

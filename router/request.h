// One request and one event type for all doors: gRPC, TGI and OpenAI routes are thin translators
// between their wire and these types, so that all give the same tokens for the same seed. A
// GenerateInput is made by an ingress thread and handed over; events come back on a text worker's
// thread through a ResponseSink.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace weft::router {

// Sampling parameters with every default applied. Units and ranges as in proto/generation.proto.
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

// What a door understood of a request. Every field has been range-checked by the door, except what
// only the model decides (prompt length, ids below the vocabulary size).
struct GenerateInput {
  // Empty = made by the intake.
  std::string request_id;
  // Text, token ids or a conversation.
  std::variant<std::string, std::vector<TokenId>, ChatPrompt> prompt;
  bool add_special_tokens = true;
  std::optional<uint32_t> truncate_prompt_tokens;
  SamplingParams sampling;
  // Without a seed the intake draws one.
  std::optional<uint64_t> seed;
  // Without a limit: what the context leaves.
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stop_sequences;
  bool include_stop_sequence = false;
  bool ignore_eos = false;
  // The first text event begins with the prompt's text.
  bool echo_prompt = false;
  int32_t priority = 0;
  // Monotonic microseconds (Clock::NowUs); 0 = none.
  int64_t deadline_us = 0;
  // Text of each single token is wanted in events (TGI's token.text).
  bool token_texts = false;
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0.0f;
  // Bytes of the token alone, when token_texts or logprobs were asked for.
  std::string text;
};

// The request was admitted; the first event of every stream that does not fail before.
struct StartedEvent {
  std::string request_id;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint64_t seed = 0;
};

// One token of the answer, with the text that became certain with it.
struct TokenEvent {
  TokenId id = 0;
  // Whole UTF-8 characters; empty while a character or a possible stop string is incomplete.
  std::string text;
  // Bytes of this token alone (lossy UTF-8 for control over SSE), when asked for.
  std::string token_text;
  bool special = false;
  bool has_logprob = false;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top;
};

enum class FinishReason : uint8_t { kLength, kEosToken, kStopSequence };

// Terminal: the answer is complete.
struct FinishedEvent {
  FinishReason reason = FinishReason::kLength;
  // Text that was held back until the end.
  std::string text;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  std::string stop_sequence;
  uint64_t seed = 0;
  // Microseconds: waiting for admission to a batch, and from there to the end.
  int64_t queue_us = 0;
  int64_t inference_us = 0;
};

// Terminal: the request failed or was cancelled. User errors are INVALID_ARGUMENT with a field
// (router/errors.h).
struct FailedEvent {
  absl::Status status;
};

using ResponseEvent = std::variant<StartedEvent, TokenEvent, FinishedEvent, FailedEvent>;

// Something that wants one call after a batch of deliveries (an io_context, a gRPC reactor).
class Waker {
 public:
  virtual ~Waker() = default;
  virtual void Wake() = 0;
};

// Where a request's events go. Held by the request and by its connection.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;

  // Takes events in order and moves out of them: the storage stays the caller's. Called by one text
  // worker thread at a time; must not block. Exactly one terminal event ends the calls (invariant
  // end.once). Returns who is to be woken once the worker's batch is done, or null.
  virtual Waker* Deliver(absl::Span<ResponseEvent> events) = 0;
};

enum class CancelReason : uint8_t { kClientGone, kAdmin, kDeadline, kSlowReader };

}  // namespace weft::router

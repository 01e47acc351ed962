// A request's stages from text to text, as plain data that moves from one owner to the next: text
// in makes a PreparedRequest, the engine loop runs it, and with the first token its writer goes on
// to text out as a StreamBegin. Whoever holds the AnswerWriter is the request's owner; nobody else
// writes its answer. What several threads share is the Answer alone (router/answer.h).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "router/answer.h"
#include "router/engine/constraint.h"
#include "router/request.h"
#include "router/scheduler/prefix_hasher.h"

namespace weft::router {

// What text out needs to turn tokens into text. Made by text in; the engine carries it unread.
class TextStage {
 public:
  virtual ~TextStage() = default;
};

// Monotonic microseconds (Clock::NowUs); 0 = not yet.
struct RequestTimes {
  int64_t arrival_us = 0;
  int64_t prepared_us = 0;
  int64_t planned_us = 0;
  int64_t first_token_us = 0;
};

// Text in → engine loop: ids, limits and all that a step wants to know.
struct PreparedRequest {
  AnswerWriter writer;
  std::unique_ptr<TextStage> text;
  // Worker of text out that the request will be at.
  uint32_t text_worker = 0;

  // With its hashes once the shards are known; it leaves with the arrival. Behind the prompt's own
  // ids are those of the answer that was there before.
  Prompt prompt;
  uint32_t prompt_tokens = 0;
  // Of the whole answer, what of it was there before included.
  uint32_t max_new_tokens = 0;
  // No token is wanted: one is sampled all the same, since a sequence ends with one, and dropped.
  bool prompt_only = false;
  // As GenerateInput's; of the first of several choices alone.
  std::optional<uint32_t> prompt_logprobs;
  // The client named the limit; otherwise it is what the context left.
  bool max_tokens_named = false;
  SamplingParams sampling;
  uint64_t seed = 0;
  int32_t priority = 0;
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  // Null: each token may be any. It knows the resumed tokens.
  std::shared_ptr<ConstrainedLog> constraint;
  // 0 = none.
  int64_t deadline_us = 0;
  RequestTimes times;

  // -- Choices of one request -------------------------------------------------------------------
  // They enter once this one's prompt has been computed, so that they find it in the prefix cache;
  // or when this one ends before.
  std::vector<std::unique_ptr<PreparedRequest>> followers;
  // It came with another one, which has been counted for both.
  bool follows = false;

  // -- A resumed request ------------------------------------------------------------------------
  std::optional<ResumedPart> resumed;
  // What the tokens of that part came from.
  std::string resumed_fingerprint;
  // That part is the whole answer.
  std::optional<FinishReason> resumed_end;

  // Of the prompt and of what was there before: what is run through the model before it goes on.
  uint32_t prefill_tokens() const { return prompt_tokens + resumed_tokens(); }
  uint32_t resumed_tokens() const { return resumed.has_value() ? resumed->tokens : 0; }
};

// Engine loop → text out: a stream begins.
struct StreamBegin {
  SequenceId sequence = 0;
  AnswerWriter writer;
  std::unique_ptr<TextStage> text;
  AnswerHead head;
  RequestTimes times;
};

struct StreamLogprob {
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;
};

// A confirmed token.
struct StreamToken {
  SequenceId sequence = 0;
  TokenId id = 0;
  // Index into StreamBatch::logprobs; negative = none.
  int32_t logprob = -1;
};

// The end of a sequence whose stream has begun.
struct StreamEnd {
  SequenceId sequence = 0;
  // OK: complete for `reason`; otherwise how it failed.
  absl::Status status;
  FinishReason reason = FinishReason::kLength;
};

// What steps gave for one worker of text out. A stream's begin comes before its tokens, its end
// after them.
struct StreamBatch {
  std::vector<StreamBegin> begins;
  std::vector<StreamToken> tokens;
  std::vector<StreamEnd> ends;
  std::vector<StreamLogprob> logprobs;

  bool empty() const { return begins.empty() && tokens.empty() && ends.empty(); }
};

// Text out, as the engine loop sees it. Thread-safe, never blocks.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Workers; a stream stays on one of them.
  virtual uint32_t workers() const = 0;
  // False when the worker's queue is full or closed; `batch` is then untouched.
  virtual bool Post(uint32_t worker, StreamBatch&& batch) = 0;
};

}  // namespace weft::router

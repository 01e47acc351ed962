// The threads that know text. On the way in they render the chat template, tokenise, truncate,
// check what only the model decides, pass admission and hand the request to the engine loop; on
// the way out they turn tokens into text, match stop strings and deliver events. A request stays
// on one worker, so its events are in order without a lock. Owned by the engine intake; the
// engine loop pays one push per worker and step.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/bounded_queue.h"
#include "common/clock.h"
#include "common/thread.h"
#include "router/admission.h"
#include "router/live_request.h"
#include "router/observe/probe.h"
#include "router/request.h"
#include "router/text/chat_template.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// The engine loop, as text workers see it. Thread-safe, never blocks.
class EngineInbox {
 public:
  virtual ~EngineInbox() = default;
  // False when the engine loop has ended; the request is the caller's again.
  virtual bool Arrive(std::shared_ptr<LiveRequest> request) = 0;
  // `sequence` is not wanted any more, for the cause in its LiveRequest.
  virtual void CancelSequence(SequenceId sequence) = 0;
};

struct TextLogprob {
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;
};

// A confirmed token. The request outlives it: its TextEnd comes later and holds it.
struct TextToken {
  LiveRequest* request = nullptr;
  TokenId id = 0;
  // Index into TextBatch::logprobs; negative = none.
  int32_t logprob = -1;
};

// The end of a sequence, the last word about its request.
struct TextEnd {
  std::shared_ptr<LiveRequest> request;
  // OK: finished for `reason`; otherwise how it failed.
  absl::Status status;
  FinishReason reason = FinishReason::kLength;
};

// What steps gave for one worker. All tokens of a request come before its end.
struct TextBatch {
  std::vector<TextToken> tokens;
  std::vector<TextEnd> ends;
  std::vector<TextLogprob> logprobs;

  bool empty() const { return tokens.empty() && ends.empty(); }
};

// What the workers share; all of it outlives the pool.
struct TextPoolContext {
  const Tokenizer* tokenizer = nullptr;
  // Null when the model has none.
  const ChatTemplate* chat_template = nullptr;
  Admission* admission = nullptr;
  EngineInbox* engine = nullptr;
  Probe* probe = nullptr;
  const Clock* clock = nullptr;
  // Ids a prompt may hold; known once the shards are.
  std::function<uint32_t()> vocab_size;
  // The request's terminal event is about to be delivered, and was; called on its worker.
  std::function<void(const LiveRequest& request)> on_ending;
  std::function<void()> on_ended;
};

class TextPool {
 public:
  // Starts `threads` workers.
  TextPool(const TextPoolContext& context, uint32_t threads);
  ~TextPool();

  // Workers; a request's `worker` is below it.
  uint32_t size() const { return static_cast<uint32_t>(workers_.size()); }

  // Prepares a request and sends it on. False when the worker's queue is full or closed.
  bool Submit(std::shared_ptr<LiveRequest> request);
  // Ends a request that never came in, with `why`. False as above.
  bool Refuse(std::shared_ptr<LiveRequest> request, absl::Status why);
  // Results for one worker. False as above; `batch` is then untouched.
  bool Post(uint32_t worker, TextBatch&& batch);
  // Runs `job` on a worker. False as above.
  bool Run(absl::AnyInvocable<void()> job);

  // Works off what is queued, then ends the threads. Idempotent.
  void Stop();

 private:
  class Worker;

  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<uint32_t> next_worker_{0};
};

}  // namespace weft::router

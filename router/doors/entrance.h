// The one way in for all doors: permits, generations, tokenising, and what a door may ask about the
// model and the server's state. Implemented by router/core; tests use a fake. Thread-safe; no call
// blocks. A refusal is a Status, answered by the door on the thread that asked (invariant
// pay.first).

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/admission.h"
#include "router/answer.h"
#include "router/engine/served.h"
#include "router/request.h"
#include "router/text/prompt_reader.h"

namespace weft::router {

// Facts of the served model, fixed once the group is ready.
struct ModelFacts {
  std::string model_name;
  ServedShape shape;
  uint32_t shards = 0;
  // Groups of equal work that the shards form. >= 1.
  uint32_t groups = 1;
  // Requests that may be here at the same time, running or not; one more is refused. The shards'
  // memory decides on it too.
  uint64_t requests_max = 0;
  bool has_chat_template = false;
  // Formats of calls and of reasoning in answers; "none" where there is none.
  std::string tool_parser = "none";
  std::string reasoning_parser = "none";
  // What a request gets that does not speak of sampling.
  SamplingParams sampling_defaults;
  int64_t created_unix_s = 0;
};

// A call of Tokenize or Detokenize that its client may leave. Any thread.
class TextCall {
 public:
  // Nobody waits for the answer: what has not begun is dropped.
  void Leave() { left_.store(true, std::memory_order_release); }
  bool left() const { return left_.load(std::memory_order_acquire); }
  const std::atomic<bool>& left_flag() const { return left_; }

 private:
  std::atomic<bool> left_{false};
};

class Entrance {
 public:
  virtual ~Entrance() = default;

  // The right of `tenant` to hand in a request with a body of `body_bytes`: before anything is made
  // of it. RESOURCE_EXHAUSTED or UNAVAILABLE with the time to come back otherwise; counted.
  virtual absl::StatusOr<Admission::Permit> Enter(const TenantRef& tenant, size_t body_bytes) = 0;
  // The same for Tokenize and Detokenize, which work before shards are there.
  virtual absl::StatusOr<Admission::Permit> EnterText(const TenantRef& tenant,
                                                      size_t body_bytes) = 0;
  // Runs `read` on a thread of text in: for bodies that are too large for a door's own. False when
  // there is no room; `read` is then untouched.
  virtual bool Run(size_t bytes, absl::AnyInvocable<void()>&& read) = 0;

  // Starts a request: as many choices of one prompt as there are permits, at least one. Once it is
  // taken, the ends come through the answers and not as a Status.
  virtual absl::StatusOr<std::vector<std::shared_ptr<Answer>>> SubmitChoices(
      GenerateInput input, std::vector<Admission::Permit> permits,
      std::shared_ptr<AnswerSink> sink) = 0;
  // The same of one.
  absl::StatusOr<std::shared_ptr<Answer>> Submit(GenerateInput input, Admission::Permit permit,
                                                 std::shared_ptr<AnswerSink> sink) {
    std::vector<Admission::Permit> permits;
    permits.push_back(std::move(permit));
    absl::StatusOr<std::vector<std::shared_ptr<Answer>>> answers =
        SubmitChoices(std::move(input), std::move(permits), std::move(sink));
    if (!answers.ok()) return answers.status();
    return std::move(answers->front());
  }
  // `done` runs once, on a thread of text in, or at once on this one when there is no room. It does
  // not run when the caller left before the work began. `call` may be null.
  virtual void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                        Admission::Permit permit, std::shared_ptr<const TextCall> call,
                        absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) = 0;
  virtual void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                          Admission::Permit permit, std::shared_ptr<const TextCall> call,
                          absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) = 0;
  // Ends the requests of this name that `tenant` has: weft's own of one, or a client's of all that
  // have it. False when none is running or waiting.
  virtual bool Cancel(const Tenant& tenant, const std::string& name) = 0;

  virtual ModelFacts Model() const = 0;
  virtual ServerStatus Status() const = 0;
};

}  // namespace weft::router

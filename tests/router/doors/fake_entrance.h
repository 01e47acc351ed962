// An intake whose answers a test writes: it keeps every submitted request, plays a script of events
// to it from its own thread, or waits for the test to send events by hand.

#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/bounded_queue.h"
#include "common/thread.h"
#include "router/intake.h"

namespace weft::router {

// A request as the fake got it.
class FakeRequest : public RequestHandle {
 public:
  FakeRequest(GenerateInput input, std::shared_ptr<ResponseSink> sink, bool fail_on_cancel)
      : input_(std::move(input)), sink_(std::move(sink)), fail_on_cancel_(fail_on_cancel) {}

  void Cancel(CancelReason reason) override;
  const std::string& request_id() const override { return input_.request_id; }

  const GenerateInput& input() const { return input_; }
  // Delivers one batch and wakes, as a text worker does. Nothing after the terminal event.
  void Send(std::vector<ResponseEvent> events);
  // Waits up to 10 s.
  std::optional<CancelReason> WaitCancelled();
  bool cancelled() const;

 private:
  const GenerateInput input_;
  const std::shared_ptr<ResponseSink> sink_;
  const bool fail_on_cancel_;
  mutable absl::Mutex mutex_;
  std::optional<CancelReason> cancelled_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

using Script = std::vector<std::vector<ResponseEvent>>;

class FakeIntake : public Intake {
 public:
  FakeIntake();
  ~FakeIntake() override;

  // Played to each request from now on, a batch a wake-up; empty = the test sends by hand.
  void SetScript(Script script);
  void SetStatus(ServerStatus status);

  // The request number `index` since the start; waits up to 10 s, null then.
  std::shared_ptr<FakeRequest> WaitRequest(size_t index);
  size_t request_count() const;

  std::shared_ptr<RequestHandle> Submit(GenerateInput input,
                                        std::shared_ptr<ResponseSink> sink) override;
  void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) override;
  void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) override;
  bool Cancel(const std::string& request_id) override;
  ModelFacts Model() const override;
  ServerStatus Status() const override;

 private:
  mutable absl::Mutex mutex_;
  Script script_ ABSL_GUARDED_BY(mutex_);
  ServerStatus status_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<FakeRequest>> requests_ ABSL_GUARDED_BY(mutex_);
  BoundedQueue<absl::AnyInvocable<void()>> work_{1024};
  Thread worker_;
};

// Events with what tests rarely vary filled in.
StartedEvent Started(uint32_t prompt_tokens = 3);
TokenEvent Token(TokenId id, const std::string& text);
TokenEvent TokenWithLogprob(TokenId id, const std::string& text, float logprob,
                            std::vector<TokenLogprob> top = {});
FinishedEvent Finished(FinishReason reason, uint32_t output_tokens, const std::string& text = "");

// "Hello world" in two tokens, ended by the length limit; the last token and the end come together.
Script HelloScript();

}  // namespace weft::router

// An entrance whose answers a test writes: it keeps every submitted request, plays a script of
// events to it from its own thread, or waits for the test to send events by hand.

#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/bounded_queue.h"
#include "common/thread.h"
#include "router/doors/entrance.h"

namespace weft::router {

// What a script says: the head, a token, the last word.
struct StartedEvent {
  AnswerHead head;
};
struct TokenEvent {
  TokenId id = 0;
  std::string text;
  // The token's own bytes.
  std::string bytes;
  bool special = false;
  bool has_logprob = false;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top;
};
using FinishedEvent = AnswerEnd;
struct FailedEvent {
  absl::Status status;
};
using ResponseEvent = std::variant<StartedEvent, TokenEvent, FinishedEvent, FailedEvent>;

// Tokens as the scripts spelled them.
class FakeTokens : public TokenTable {
 public:
  void Set(TokenId id, absl::string_view bytes, bool special);
  absl::string_view Bytes(TokenId id) const override;
  bool IsSpecial(TokenId id) const override;

 private:
  mutable absl::Mutex mutex_;
  // Values stay where they are: readers hold views of them.
  std::deque<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  std::map<TokenId, std::pair<absl::string_view, bool>> tokens_ ABSL_GUARDED_BY(mutex_);
};

// A request as the fake got it.
class FakeRequest {
 public:
  FakeRequest(GenerateInput input, AnswerWriter writer, FakeTokens* tokens)
      : input_(std::move(input)),
        answer_(writer.shared_answer()),
        tokens_(tokens),
        writer_(std::move(writer)) {}

  // Its door may have gone: nobody is told.
  ~FakeRequest() {
    absl::MutexLock lock(&mutex_);
    writer_.Abandon();
  }

  // The door cancelled: the request fails.
  void OnCancelled();
  // When that comes, the end says that so much was read and generated.
  void EndCancelledWith(uint32_t prompt_tokens, uint32_t output_tokens);

  const GenerateInput& input() const { return input_; }
  // Writes one batch and wakes, as text out does. Nothing after the end.
  void Send(std::vector<ResponseEvent> events);
  // Waits up to 10 s.
  std::optional<CancelReason> WaitCancelled();
  bool cancelled() const;
  // The door has let go of the answer too.
  bool gone() const { return answer_.expired(); }

 private:
  const GenerateInput input_;
  const std::weak_ptr<Answer> answer_;
  FakeTokens* const tokens_;
  mutable absl::Mutex mutex_;
  AnswerWriter writer_ ABSL_GUARDED_BY(mutex_);
  std::optional<CancelReason> cancelled_ ABSL_GUARDED_BY(mutex_);
  AnswerEnd cancelled_end_ ABSL_GUARDED_BY(mutex_);
};

using Script = std::vector<std::vector<ResponseEvent>>;

class FakeEntrance : public Entrance, public AnswerRegistry {
 public:
  explicit FakeEntrance(const AdmissionLimits& limits = {});
  ~FakeEntrance() override;

  // Played to each request from now on, a batch a wake-up; empty = the test sends by hand.
  void SetScript(Script script);
  void SetStatus(ServerStatus status);
  // Formats of the model's answers from now on; "none" before.
  void SetParsers(std::string tool_parser, std::string reasoning_parser);
  // What a request gets that does not speak of sampling, from now on.
  void SetSamplingDefaults(SamplingParams defaults);
  // Takes no text job from now on, as when too many wait.
  void FillTextQueue();
  // What every request ends with at once from now on, as that of a tenant's limits does.
  void RefuseRequests(absl::Status status);

  // The request number `index` since the start; waits up to 10 s, null then.
  std::shared_ptr<FakeRequest> WaitRequest(size_t index);
  size_t request_count() const;
  const Admission& admission() const { return admission_; }

  absl::StatusOr<Admission::Permit> Enter(const TenantRef& tenant, size_t body_bytes) override;
  absl::StatusOr<Admission::Permit> EnterText(const TenantRef& tenant, size_t body_bytes) override;
  bool Run(size_t bytes, absl::AnyInvocable<void()>&& read) override;
  absl::StatusOr<std::vector<std::shared_ptr<Answer>>> SubmitChoices(
      GenerateInput input, std::vector<Admission::Permit> permits,
      std::shared_ptr<AnswerSink> sink) override;
  void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                Admission::Permit permit, std::shared_ptr<const TextCall> call,
                absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) override;
  void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens, Admission::Permit permit,
                  std::shared_ptr<const TextCall> call,
                  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) override;
  bool Cancel(const Tenant& tenant, const std::string& name) override;
  ModelFacts Model() const override;
  ServerStatus Status() const override;

  void OnAnswerGone(const Answer&) override {}
  void OnCancelled(SequenceId sequence) override;

 private:
  Admission admission_;
  FakeTokens tokens_;
  mutable absl::Mutex mutex_;
  Script script_ ABSL_GUARDED_BY(mutex_);
  std::string tool_parser_ ABSL_GUARDED_BY(mutex_) = "none";
  std::string reasoning_parser_ ABSL_GUARDED_BY(mutex_) = "none";
  SamplingParams sampling_defaults_ ABSL_GUARDED_BY(mutex_);
  ServerStatus status_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool text_queue_full_ ABSL_GUARDED_BY(mutex_) = false;
  // By sequence, which counts from 1.
  std::deque<std::shared_ptr<FakeRequest>> requests_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::weak_ptr<Answer>> answers_ ABSL_GUARDED_BY(mutex_);
  BoundedQueue<absl::AnyInvocable<void()>> work_{1024};
  Thread worker_;
};

// Events with what tests rarely vary filled in.
StartedEvent Started(uint32_t prompt_tokens = 3, uint32_t cached_tokens = 1);
TokenEvent Token(TokenId id, const std::string& text);
TokenEvent TokenWithLogprob(TokenId id, const std::string& text, float logprob,
                            std::vector<TokenLogprob> top = {});
FinishedEvent Finished(FinishReason reason, uint32_t output_tokens, const std::string& text = "");

// "Hello world" in two tokens, ended by the length limit; the last token and the end come together.
Script HelloScript();

}  // namespace weft::router

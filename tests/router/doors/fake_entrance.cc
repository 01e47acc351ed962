#include "tests/router/doors/fake_entrance.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace weft::router {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

void FakeTokens::Set(TokenId id, absl::string_view bytes, bool special) {
  absl::MutexLock lock(&mutex_);
  texts_.emplace_back(bytes);
  tokens_[id] = {texts_.back(), special};
}

absl::string_view FakeTokens::Bytes(TokenId id) const {
  absl::MutexLock lock(&mutex_);
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? absl::string_view() : it->second.first;
}

bool FakeTokens::IsSpecial(TokenId id) const {
  absl::MutexLock lock(&mutex_);
  const auto it = tokens_.find(id);
  return it != tokens_.end() && it->second.second;
}

void FakeRequest::EndCancelledWith(uint32_t prompt_tokens, uint32_t output_tokens) {
  absl::MutexLock lock(&mutex_);
  cancelled_end_ = Finished(FinishReason::kLength, output_tokens);
  cancelled_end_.prompt_tokens = prompt_tokens;
}

void FakeRequest::OnCancelled() {
  AnswerEnd end;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_.has_value()) return;
    const std::shared_ptr<Answer> answer = answer_.lock();
    cancelled_ = answer == nullptr ? CancelReason::kNone : answer->cancelled();
    end = cancelled_end_;
  }
  end.status = absl::CancelledError("cancelled");
  Send({std::move(end)});
}

void FakeRequest::Send(std::vector<ResponseEvent> events) {
  std::vector<std::shared_ptr<AnswerSink>> retired;
  Waker* waker = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (writer_.ended()) return;
    for (ResponseEvent& event : events) {
      if (auto* started = std::get_if<StartedEvent>(&event)) {
        writer_.Head(started->head);
      } else if (auto* token = std::get_if<TokenEvent>(&event)) {
        tokens_->Set(token->id, token->bytes, token->special);
        std::vector<std::pair<TokenId, float>> top;
        for (const TokenLogprob& one : token->top) {
          tokens_->Set(one.id, one.bytes, false);
          top.emplace_back(one.id, one.logprob);
        }
        if (token->has_logprob) {
          writer_.Token(token->id, token->text, token->logprob, top);
        } else {
          writer_.Token(token->id, token->text);
        }
      } else if (auto* failed = std::get_if<FailedEvent>(&event)) {
        AnswerEnd end;
        end.status = failed->status;
        writer_.End(std::move(end));
      } else {
        writer_.End(std::get<FinishedEvent>(std::move(event)));
      }
    }
    waker = writer_.Publish(&retired);
  }
  if (waker != nullptr) waker->Wake();
}

std::optional<CancelReason> FakeRequest::WaitCancelled() {
  absl::MutexLock lock(&mutex_);
  const auto done = [this]()
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return cancelled_.has_value(); };
  mutex_.AwaitWithTimeout(absl::Condition(&done), kPatience);
  return cancelled_;
}

bool FakeRequest::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_.has_value();
}

FakeEntrance::FakeEntrance(const AdmissionLimits& limits)
    : admission_(limits, &MonotonicClock()), script_(HelloScript()) {
  status_.state = ServerState::kReady;
  status_.percent = 100;
  worker_ = Thread("fake-text", [this] {
    while (!work_.closed()) {
      for (absl::AnyInvocable<void()>& work : work_.PopAll()) work();
    }
  });
}

FakeEntrance::~FakeEntrance() {
  work_.Close();
  worker_.Join();
}

void FakeEntrance::SetScript(Script script) {
  absl::MutexLock lock(&mutex_);
  script_ = std::move(script);
}

void FakeEntrance::SetStatus(ServerStatus status) {
  absl::MutexLock lock(&mutex_);
  status_ = std::move(status);
}

void FakeEntrance::FillTextQueue() {
  absl::MutexLock lock(&mutex_);
  text_queue_full_ = true;
}

void FakeEntrance::RefuseRequests(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  refusal_ = std::move(status);
}

std::shared_ptr<FakeRequest> FakeEntrance::WaitRequest(size_t index) {
  absl::MutexLock lock(&mutex_);
  const auto there = [&]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return requests_.size() > index; };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience)) return nullptr;
  return requests_[index];
}

size_t FakeEntrance::request_count() const {
  absl::MutexLock lock(&mutex_);
  return requests_.size();
}

absl::StatusOr<Admission::Permit> FakeEntrance::Enter(const TenantRef& tenant, size_t body_bytes) {
  return admission_.Enter(tenant, body_bytes);
}

absl::StatusOr<Admission::Permit> FakeEntrance::EnterText(const TenantRef& tenant,
                                                          size_t body_bytes) {
  return admission_.EnterText(tenant, body_bytes);
}

bool FakeEntrance::Run(size_t, absl::AnyInvocable<void()>&& read) {
  {
    absl::MutexLock lock(&mutex_);
    if (text_queue_full_) return false;
  }
  return work_.TryPush(std::move(read));
}

absl::StatusOr<std::vector<std::shared_ptr<Answer>>> FakeEntrance::SubmitChoices(
    GenerateInput input, std::vector<Admission::Permit> permits, std::shared_ptr<AnswerSink> sink) {
  absl::MutexLock lock(&mutex_);
  if (!refusal_.ok()) return refusal_;
  std::vector<std::shared_ptr<Answer>> answers;
  for (Admission::Permit& permit : permits) {
    const SequenceId sequence = requests_.size() + 1;
    auto answer = std::make_shared<Answer>(sequence, absl::StrCat("req-", sequence),
                                           input.correlation_id, std::move(permit), &tokens_, this);
    auto request = std::make_shared<FakeRequest>(input, AnswerWriter(answer, sink), &tokens_);
    requests_.push_back(request);
    answers_.push_back(answer);
    answers.push_back(answer);
    if (!script_.empty()) {
      work_.TryPush([request, script = script_] {
        for (const std::vector<ResponseEvent>& batch : script) request->Send(batch);
      });
    }
  }
  return answers;
}

void FakeEntrance::OnCancelled(SequenceId sequence) {
  std::shared_ptr<FakeRequest> request;
  {
    absl::MutexLock lock(&mutex_);
    request = requests_[sequence - 1];
  }
  request->OnCancelled();
}

void FakeEntrance::Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                            Admission::Permit permit, std::shared_ptr<const TextCall> call,
                            absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) {
  TokenizeResult result;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    // A token a byte.
    if (add_special_tokens) {
      result.ids.push_back(1);
      result.tokens.push_back("<s>");
      result.offsets.emplace_back(0, 0);
    }
    for (uint32_t i = 0; i < text->size(); ++i) {
      result.ids.push_back(static_cast<unsigned char>((*text)[i]));
      result.tokens.emplace_back(1, (*text)[i]);
      result.offsets.emplace_back(i, i + 1);
    }
  } else {
    for (const ChatMessage& message : std::get<ChatPrompt>(prompt).messages) {
      result.text += message.role + ":" + message.content + ";";
    }
    result.ids = {7};
    result.tokens = {result.text};
  }
  work_.TryPush([done = std::move(done), result, call, permit = std::move(permit)]() mutable {
    if (call == nullptr || !call->left()) done(std::move(result));
  });
}

void FakeEntrance::Detokenize(std::vector<TokenId> ids, bool, Admission::Permit,
                              std::shared_ptr<const TextCall>,
                              absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  std::string text;
  for (const TokenId id : ids) text.push_back(static_cast<char>(id));
  work_.TryPush([done = std::move(done), text]() mutable { done(std::move(text)); });
}

bool FakeEntrance::Cancel(const Tenant& tenant, const std::string& name) {
  std::vector<std::shared_ptr<Answer>> found;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::weak_ptr<Answer>& weak : answers_) {
      const std::shared_ptr<Answer> answer = weak.lock();
      if (answer != nullptr && answer->tenant()->index == tenant.index && answer->name() == name)
        found.push_back(answer);
    }
  }
  for (const std::shared_ptr<Answer>& answer : found) answer->Cancel(CancelReason::kAdmin);
  return !found.empty();
}

void FakeEntrance::SetParsers(std::string tool_parser, std::string reasoning_parser) {
  absl::MutexLock lock(&mutex_);
  tool_parser_ = std::move(tool_parser);
  reasoning_parser_ = std::move(reasoning_parser);
}

void FakeEntrance::SetSamplingDefaults(SamplingParams defaults) {
  absl::MutexLock lock(&mutex_);
  sampling_defaults_ = std::move(defaults);
}

ModelFacts FakeEntrance::Model() const {
  ModelFacts model;
  {
    absl::MutexLock lock(&mutex_);
    model.tool_parser = tool_parser_;
    model.reasoning_parser = reasoning_parser_;
    model.sampling_defaults = sampling_defaults_;
  }
  model.model_name = "fake/model";
  model.requests_max = admission_.requests_max();
  model.shards = 2;
  model.has_chat_template = true;
  model.created_unix_s = 1700000000;
  // Shards tell the rest when the first group has formed.
  const ServerState state = Status().state;
  if (state == ServerState::kStarting || state == ServerState::kLoading) return model;
  model.shape.family = "llama";
  model.shape.parameters = 1000;
  model.shape.vocab_size = 300;
  model.shape.context_tokens = 2048;
  model.shape.request_tokens_max = 1024;
  model.shape.dtype = "bfloat16";
  model.shape.device = "cpu";
  return model;
}

ServerStatus FakeEntrance::Status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

StartedEvent Started(uint32_t prompt_tokens, uint32_t cached_tokens) {
  StartedEvent event;
  event.head.prompt_tokens = prompt_tokens;
  event.head.cached_tokens = cached_tokens;
  event.head.seed = 42;
  event.head.fingerprint = "weft-V";
  return event;
}

TokenEvent Token(TokenId id, const std::string& text) {
  TokenEvent event;
  event.id = id;
  event.text = text;
  event.bytes = text;
  return event;
}

TokenEvent TokenWithLogprob(TokenId id, const std::string& text, float logprob,
                            std::vector<TokenLogprob> top) {
  TokenEvent event = Token(id, text);
  event.has_logprob = true;
  event.logprob = logprob;
  event.top = std::move(top);
  return event;
}

FinishedEvent Finished(FinishReason reason, uint32_t output_tokens, const std::string& text) {
  FinishedEvent event;
  event.reason = reason;
  event.text = text;
  event.prompt_tokens = 3;
  event.output_tokens = output_tokens;
  event.seed = 42;
  event.validation_us = 1000;
  event.queue_us = 2000;
  event.inference_us = 10000;
  return event;
}

Script HelloScript() {
  return {
      {Started()}, {Token(10, "Hello")}, {Token(11, " world"), Finished(FinishReason::kLength, 2)}};
}

}  // namespace weft::router

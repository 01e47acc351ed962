#include "tests/router/doors/fake_entrance.h"

#include <utility>

#include "absl/time/time.h"

namespace weft::router {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

void FakeRequest::Cancel(CancelReason reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_.has_value()) return;
    cancelled_ = reason;
  }
  if (fail_on_cancel_) Send({FailedEvent{absl::CancelledError("cancelled")}});
}

void FakeRequest::Send(std::vector<ResponseEvent> events) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    for (const ResponseEvent& event : events) {
      ended_ |= std::holds_alternative<FinishedEvent>(event) ||
                std::holds_alternative<FailedEvent>(event);
    }
  }
  if (Waker* waker = sink_->Deliver(absl::MakeSpan(events))) waker->Wake();
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

FakeIntake::FakeIntake() : script_(HelloScript()) {
  status_.state = ServerState::kReady;
  status_.percent = 100;
  worker_ = Thread("fake-text", [this] {
    while (!work_.closed()) {
      for (absl::AnyInvocable<void()>& work : work_.PopAll()) work();
    }
  });
}

FakeIntake::~FakeIntake() {
  work_.Close();
  worker_.Join();
}

void FakeIntake::SetScript(Script script) {
  absl::MutexLock lock(&mutex_);
  script_ = std::move(script);
}

void FakeIntake::SetStatus(ServerStatus status) {
  absl::MutexLock lock(&mutex_);
  status_ = std::move(status);
}

std::shared_ptr<FakeRequest> FakeIntake::WaitRequest(size_t index) {
  absl::MutexLock lock(&mutex_);
  const auto there = [&]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return requests_.size() > index; };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience)) return nullptr;
  return requests_[index];
}

size_t FakeIntake::request_count() const {
  absl::MutexLock lock(&mutex_);
  return requests_.size();
}

std::shared_ptr<RequestHandle> FakeIntake::Submit(GenerateInput input,
                                                  std::shared_ptr<ResponseSink> sink) {
  absl::MutexLock lock(&mutex_);
  auto request = std::make_shared<FakeRequest>(std::move(input), std::move(sink), true);
  requests_.push_back(request);
  if (!script_.empty()) {
    work_.TryPush([request, script = script_] {
      for (const std::vector<ResponseEvent>& batch : script) request->Send(batch);
    });
  }
  return request;
}

void FakeIntake::Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
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
  work_.TryPush([done = std::move(done), result]() mutable { done(std::move(result)); });
}

void FakeIntake::Detokenize(std::vector<TokenId> ids, bool,
                            absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  std::string text;
  for (const TokenId id : ids) text.push_back(static_cast<char>(id));
  work_.TryPush([done = std::move(done), text]() mutable { done(std::move(text)); });
}

bool FakeIntake::Cancel(const std::string& request_id) {
  std::shared_ptr<FakeRequest> found;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<FakeRequest>& request : requests_) {
      if (request->request_id() == request_id) found = request;
    }
  }
  if (found == nullptr) return false;
  found->Cancel(CancelReason::kAdmin);
  return true;
}

ModelFacts FakeIntake::Model() const {
  ModelFacts model;
  model.model_name = "fake/model";
  model.family = "llama";
  model.parameters = 1000;
  model.vocab_size = 300;
  model.context_tokens = 2048;
  model.request_tokens_max = 1024;
  model.dtype = "bfloat16";
  model.device = "cpu";
  model.shards = 2;
  model.has_chat_template = true;
  model.created_unix_s = 1700000000;
  return model;
}

ServerStatus FakeIntake::Status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

StartedEvent Started(uint32_t prompt_tokens) {
  StartedEvent event;
  event.request_id = "r";
  event.prompt_tokens = prompt_tokens;
  event.cached_tokens = 1;
  event.seed = 42;
  return event;
}

TokenEvent Token(TokenId id, const std::string& text) {
  TokenEvent event;
  event.id = id;
  event.text = text;
  event.token_text = text;
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
  event.queue_us = 2000;
  event.inference_us = 10000;
  return event;
}

Script HelloScript() {
  return {
      {Started()}, {Token(10, "Hello")}, {Token(11, " world"), Finished(FinishReason::kLength, 2)}};
}

}  // namespace weft::router

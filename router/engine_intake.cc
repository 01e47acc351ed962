#include "router/engine_intake.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status.h"
#include "router/admission.h"
#include "router/engine/loop.h"
#include "router/engine/random_id.h"
#include "router/errors.h"
#include "router/live_request.h"
#include "router/shards/client.h"
#include "router/shards/supervisor_client.h"
#include "router/text/chat_template.h"
#include "router/text/model_text.h"
#include "router/text/prompt_reader.h"
#include "router/text/tokenizer.h"
#include "router/text_pool.h"

namespace weft::router {
namespace {

EngineLoopOptions LoopOptions(const EngineOptions& options, const ModelText& text) {
  EngineLoopOptions out;
  out.running_max = options.running_max;
  out.step_tokens_max = options.step_tokens_max;
  out.context_tokens_max = options.context_tokens_max;
  out.waiting_max = options.queue_requests_max + options.running_max;
  out.inter_token_target_us = options.inter_token_target_us;
  out.prefix_cache = options.prefix_cache;
  out.eos_ids = text.eos_ids;
  out.hang_timeout_ms = options.hang_timeout_ms;
  out.recovery_timeout_us = options.recovery_timeout_s * 1'000'000;
  out.on_fatal = options.on_fatal;
  out.step_delay_for_test_us = options.step_delay_for_test_us;
  return out;
}

absl::Status CheckOptions(const EngineOptions& options) {
  const auto refuse = [](absl::string_view what) { return absl::InvalidArgumentError(what); };
  if (options.shards.empty() || options.shards.size() > kWorldMax) {
    return refuse(absl::StrCat("expected 1 .. ", kWorldMax, " shard addresses, found ",
                               options.shards.size()));
  }
  if (options.text_threads == 0) return refuse("text threads: expected at least 1");
  if (options.running_max == 0 || options.running_max > kRunningMax) {
    return refuse(absl::StrCat("--running-max: expected 1 .. ", kRunningMax));
  }
  if (options.step_tokens_max < options.running_max || options.step_tokens_max > kStepTokensMax) {
    return refuse(absl::StrCat("--step-tokens-max: expected at least --running-max (",
                               options.running_max, ") and at most ", kStepTokensMax));
  }
  // Each request may put a few events into the engine loop's queue.
  if (options.queue_requests_max > kEngineEventsMax / 8) {
    return refuse(absl::StrCat("queued requests: expected at most ", kEngineEventsMax / 8));
  }
  if (options.recovery_timeout_s <= 0) return refuse("recovery time-out: expected more than 0 s");
  return absl::OkStatus();
}

class EngineIntake : public Engine {
 public:
  EngineIntake(EngineOptions options, ModelText text, std::unique_ptr<Tokenizer> tokenizer,
               std::unique_ptr<ChatTemplate> chat_template, Probe* probe)
      : options_(std::move(options)),
        model_text_(std::move(text)),
        tokenizer_(std::move(tokenizer)),
        chat_template_(std::move(chat_template)),
        probe_(probe),
        clock_(MonotonicClock()),
        created_unix_s_(std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count()),
        admission_({options_.running_max, options_.queue_requests_max, options_.queue_tokens_max},
                   &clock_),
        loop_(LoopOptions(options_, model_text_), &admission_, probe, &clock_),
        text_(TextContext(), options_.text_threads) {
    if (options_.served_model_name.empty()) options_.served_model_name = model_text_.model_name;
  }

  ~EngineIntake() override { Shutdown(); }

  absl::Status Start();

  // -- Intake
  std::shared_ptr<RequestHandle> Submit(GenerateInput input,
                                        std::shared_ptr<ResponseSink> sink) override;
  void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) override;
  void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) override;
  bool Cancel(const std::string& request_id) override;
  ModelFacts Model() const override;
  ServerStatus Status() const override { return loop_.Status(); }

  // -- Engine
  void StartDrain(absl::Duration timeout) override;
  bool WaitIdle(absl::Duration timeout) override;
  void Shutdown() override;

 private:
  class Handle;

  TextPoolContext TextContext();
  // Adds the request under its id, or under one made for it. ALREADY_EXISTS when it is in use.
  absl::Status Register(const std::shared_ptr<LiveRequest>& request);
  void Unregister(const LiveRequest& request);
  // Registration and the request's place in the queue.
  absl::Status Enter(const std::shared_ptr<LiveRequest>& request);
  void CancelRequest(LiveRequest& request, EndCause cause);
  bool Empty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return undelivered_ == 0; }

  EngineOptions options_;
  const ModelText model_text_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  const std::unique_ptr<ChatTemplate> chat_template_;
  Probe* const probe_;
  const Clock& clock_;
  const int64_t created_unix_s_;

  Admission admission_;
  std::unique_ptr<SupervisorClient> supervisor_;
  EngineLoop loop_;
  TextPool text_;

  std::atomic<SequenceId> next_sequence_{1};
  mutable absl::Mutex mutex_;
  // Requests without their terminal event, by id.
  absl::flat_hash_map<std::string, std::shared_ptr<LiveRequest>> requests_ ABSL_GUARDED_BY(mutex_);
  // Requests whose terminal event was not delivered.
  uint64_t undelivered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

// What a door holds. The engine outlives the doors.
class EngineIntake::Handle : public RequestHandle {
 public:
  Handle(EngineIntake* intake, std::shared_ptr<LiveRequest> request)
      : intake_(intake), request_(std::move(request)) {}

  void Cancel(CancelReason reason) override {
    intake_->CancelRequest(*request_, static_cast<EndCause>(static_cast<int>(reason) + 1));
  }
  const std::string& request_id() const override { return request_->id; }

 private:
  EngineIntake* const intake_;
  const std::shared_ptr<LiveRequest> request_;
};

absl::Status EngineIntake::Start() {
  if (!options_.supervisor_socket.empty()) {
    supervisor_ = std::make_unique<SupervisorClient>(
        options_.supervisor_socket, [this](ShardDeath death) { loop_.ShardDied(death); });
  }
  const auto make_clients =
      [this](const ShardReplySink& sink,
             Poller* poller) -> absl::StatusOr<std::vector<std::unique_ptr<ShardClient>>> {
    std::vector<std::unique_ptr<ShardClient>> clients;
    for (Rank rank = 0; rank < options_.shards.size(); ++rank) {
      WEFT_ASSIGN_OR_RETURN(
          std::unique_ptr<ShardClient> client,
          MakeShardClient(rank, options_.shards[rank], options_.shard_tls, sink, poller, &clock_));
      clients.push_back(std::move(client));
    }
    return clients;
  };
  return loop_.Start(make_clients, &text_, supervisor_.get());
}

TextPoolContext EngineIntake::TextContext() {
  TextPoolContext context;
  context.tokenizer = tokenizer_.get();
  context.chat_template = chat_template_.get();
  context.admission = &admission_;
  context.engine = &loop_;
  context.probe = probe_;
  context.clock = &clock_;
  context.vocab_size = [this] { return loop_.vocab_size(); };
  context.on_ending = [this](const LiveRequest& request) { Unregister(request); };
  context.on_ended = [this] {
    absl::MutexLock lock(&mutex_);
    --undelivered_;
  };
  return context;
}

// -- Requests ------------------------------------------------------------------------------------

std::shared_ptr<RequestHandle> EngineIntake::Submit(GenerateInput input,
                                                    std::shared_ptr<ResponseSink> sink) {
  auto request = std::make_shared<LiveRequest>();
  request->sequence = next_sequence_.fetch_add(1, std::memory_order_relaxed);
  request->worker = static_cast<uint32_t>(request->sequence % text_.size());
  request->id = input.request_id;
  request->sink = std::move(sink);
  request->seed = input.seed.has_value() ? *input.seed : RandomId();
  request->arrival_us = clock_.NowUs();
  request->input = std::move(input);
  auto handle = std::make_shared<Handle>(this, request);
  absl::Status status = Enter(request);
  const bool queued =
      status.ok() ? text_.Submit(request) : text_.Refuse(request, std::move(status));
  if (!queued) {
    // The worker's queue is full or closed: the one outcome that comes on the caller's thread.
    request->permit.Release();
    std::vector<ResponseEvent> events;
    events.emplace_back(FailedEvent{
        UnavailableError("SHUTTING_DOWN", "the server takes no requests now", absl::Seconds(1))});
    Unregister(*request);
    Waker* waker = request->sink->Deliver(absl::MakeSpan(events));
    if (waker != nullptr) waker->Wake();
    absl::MutexLock lock(&mutex_);
    --undelivered_;
  }
  return handle;
}

absl::Status EngineIntake::Enter(const std::shared_ptr<LiveRequest>& request) {
  if (absl::Status status = Register(request); !status.ok()) {
    probe_->Failed(FailureReason::kValidation);
    return status;
  }
  absl::StatusOr<Admission::Permit> permit = admission_.Enter();
  if (permit.ok()) {
    request->permit = *std::move(permit);
    return absl::OkStatus();
  }
  if (absl::IsResourceExhausted(permit.status())) {
    probe_->Rejected(RejectReason::kQueueRequests);
    probe_->Failed(FailureReason::kOverloaded);
  } else {
    const bool draining = ErrorReason(permit.status()) == "DRAINING";
    probe_->Rejected(draining ? RejectReason::kDraining : RejectReason::kNotReady);
    probe_->Failed(FailureReason::kUnavailable);
  }
  return permit.status();
}

absl::Status EngineIntake::Register(const std::shared_ptr<LiveRequest>& request) {
  const bool given = !request->id.empty();
  absl::MutexLock lock(&mutex_);
  ++undelivered_;
  if (!given) request->id = absl::StrCat("req-", absl::Hex(RandomId(), absl::kZeroPad16));
  if (requests_.try_emplace(request->id, request).second) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("`request_id`: ", request->id, " is in use by a request that has not ended"));
}

void EngineIntake::Unregister(const LiveRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto it = requests_.find(request.id);
  // A request refused for its id is not the one registered under it.
  if (it != requests_.end() && it->second.get() == &request) requests_.erase(it);
}

void EngineIntake::CancelRequest(LiveRequest& request, EndCause cause) {
  if (request.TryCancel(cause)) loop_.CancelSequence(request.sequence);
}

bool EngineIntake::Cancel(const std::string& request_id) {
  std::shared_ptr<LiveRequest> request;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = requests_.find(request_id);
    if (it == requests_.end()) return false;
    request = it->second;
  }
  CancelRequest(*request, EndCause::kAdmin);
  return true;
}

void EngineIntake::Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                            absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) {
  // Shared, because a refused job must still be answered.
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  const bool queued =
      text_.Run([this, shared, prompt = std::move(prompt), add_special_tokens]() mutable {
        (*shared)(TokenizePrompt(*tokenizer_, chat_template_.get(), std::move(prompt),
                                 add_special_tokens));
      });
  if (!queued) {
    (*shared)(OverloadedError("TEXT_QUEUE_FULL", "the text workers are busy", absl::Seconds(1)));
  }
}

void EngineIntake::Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                              absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  const bool queued = text_.Run([this, shared, ids = std::move(ids), skip_special_tokens] {
    (*shared)(tokenizer_->Decode(ids, skip_special_tokens));
  });
  if (!queued) {
    (*shared)(OverloadedError("TEXT_QUEUE_FULL", "the text workers are busy", absl::Seconds(1)));
  }
}

ModelFacts EngineIntake::Model() const {
  const ServedShape shape = loop_.Shape();
  ModelFacts facts;
  facts.model_name = options_.served_model_name;
  facts.family = shape.family;
  facts.parameters = shape.parameters;
  facts.vocab_size = shape.vocab_size;
  facts.context_tokens = shape.context_tokens;
  facts.request_tokens_max = shape.request_tokens_max;
  facts.dtype = shape.dtype;
  facts.device = shape.device;
  facts.shards = static_cast<uint32_t>(options_.shards.size());
  facts.has_chat_template = chat_template_ != nullptr;
  facts.created_unix_s = created_unix_s_;
  return facts;
}

// -- Life ----------------------------------------------------------------------------------------

void EngineIntake::StartDrain(absl::Duration timeout) {
  admission_.Close(UnavailableError("DRAINING", "the server is shutting down", absl::Seconds(1)));
  loop_.EndAllAt(clock_.NowUs() + std::max<int64_t>(absl::ToInt64Microseconds(timeout), 1));
}

bool EngineIntake::WaitIdle(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(this, &EngineIntake::Empty), timeout);
}

void EngineIntake::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  admission_.Close(
      UnavailableError("SHUTTING_DOWN", "the server is shutting down", absl::Seconds(1)));
  loop_.Stop();         // ends live requests; their events are queued to the workers
  supervisor_.reset();  // its news go to the loop's closed queue
  text_.Stop();         // works the queues off: every request has its terminal event then
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineIntake(EngineOptions options, Probe* probe) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  WEFT_ASSIGN_OR_RETURN(ModelText text, LoadModelText(options.model_path));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                        Tokenizer::FromModel(options.model_path));
  std::unique_ptr<ChatTemplate> chat_template;
  if (!text.chat_template.empty()) {
    WEFT_ASSIGN_OR_RETURN(chat_template,
                          ChatTemplate::Create(text.chat_template, text.bos_token, text.eos_token));
  }
  auto intake = std::make_unique<EngineIntake>(
      std::move(options), std::move(text), std::move(tokenizer), std::move(chat_template), probe);
  WEFT_RETURN_IF_ERROR(intake->Start());
  return intake;
}

}  // namespace weft::router

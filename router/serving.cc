#include "router/serving.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"
#include "router/engine/outcome.h"
#include "router/errors.h"
#include "router/text/answer_wishes.h"
#include "router/text/prompt_reader.h"

namespace weft::router {
namespace {

EngineLoopOptions LoopOptions(const EngineOptions& options, const ModelText& text,
                              const Tokenizer& tokenizer, const TokenizerFingerprint& fingerprint) {
  EngineLoopOptions out;
  out.running_max = options.running_max;
  out.step_tokens_max = options.step_tokens_max;
  out.context_tokens_max = options.context_tokens_max;
  out.waiting_max = options.queue_requests_max + options.running_max;
  out.inter_token_target_us = options.inter_token_target_us;
  out.prefix_cache = options.prefix_cache;
  out.eos_ids = text.eos_ids;
  out.model = {tokenizer.vocab_size(), text.eos_ids, text.context_tokens, fingerprint};
  out.model_name = options.served_model_name.empty() ? text.model_name : options.served_model_name;
  out.launcher = options.launcher;
  out.hang_timeout_ms = options.hang_timeout_ms;
  out.recovery_timeout_us = options.recovery_timeout_s * 1'000'000;
  out.queue_timeout_us = options.queue_timeout_s * 1'000'000;
  out.on_fatal = options.on_fatal;
  out.on_serving = options.on_serving;
  return out;
}

std::vector<uint32_t> WorldsOf(const EngineOptions& options) {
  std::vector<uint32_t> worlds;
  for (const auto& group : options.groups) worlds.push_back(static_cast<uint32_t>(group.size()));
  return worlds;
}

absl::Status ShuttingDown() {
  return UnavailableError("SHUTTING_DOWN", "the server takes no requests now", absl::Seconds(1));
}

// What is made ahead stands behind what serves.
constexpr int kGrammarNice = 5;

// A text becomes ids and, on the way, its JSON, its parsed copy and the encoder's lists.
constexpr size_t kTextCopies = 3;

}  // namespace

Serving::Serving(EngineOptions options, ModelText text, std::unique_ptr<Tokenizer> tokenizer,
                 const TokenizerFingerprint& fingerprint,
                 std::unique_ptr<ChatTemplate> chat_template,
                 std::unique_ptr<GrammarEngine> grammars, AnswerDefaults defaults, Probe* probe)
    : options_(std::move(options)),
      model_text_(std::move(text)),
      tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      grammars_(std::move(grammars)),
      defaults_(std::move(defaults)),
      tokens_(tokenizer_.get()),
      probe_(probe),
      clock_(*options_.runtime.clock),
      created_unix_s_(std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count()),
      admission_(
          {options_.running_max * static_cast<uint32_t>(options_.groups.size()),
           {options_.queue_requests_max, options_.queue_tokens_max, options_.text_bytes_max}},
          &clock_),
      text_out_(options_.text_threads, options_.runtime.stream_batches_max, probe, &clock_,
                options_.runtime.executor),
      mask_maker_(options_.mask_threads, options_.runtime.executor),
      groups_(LoopOptions(options_, model_text_, *tokenizer_, fingerprint), WorldsOf(options_),
              &admission_, probe, options_.runtime),
      text_in_(options_.text_threads, options_.runtime.executor) {
  if (options_.served_model_name.empty()) options_.served_model_name = model_text_.model_name;
}

absl::Status Serving::StartRecorders() {
  if (options_.record.path.empty()) return absl::OkStatus();
  const size_t groups = options_.groups.size();
  for (size_t group = 0; group < groups; ++group) {
    recording::RecordOptions record = options_.record;
    if (groups > 1) {
      // A recording is of one scheduler.
      absl::StrAppend(&record.path, ".group", group);
      record.bytes_max = std::max<uint64_t>(record.bytes_max / groups, 1);
    }
    absl::StatusOr<std::unique_ptr<Recorder>> recorder =
        Recorder::Create(record, options_.runtime.random_id());
    if (!recorder.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("--record: ", recorder.status().message(),
                       "; name a file in a directory that this user may write to"));
    }
    recorders_.push_back(*std::move(recorder));
  }
  return absl::OkStatus();
}

absl::Status Serving::Start() {
  if (grammars_ != nullptr) {
    grammar_thread_ = Thread(
        "grammars",
        [this] {
          if (const absl::Status status = grammars_->Prepare(); !status.ok()) {
            WEFT_LOG_WARN("requests with a grammar are refused: {}", std::string(status.message()));
          }
        },
        kGrammarNice);
  }
  WEFT_RETURN_IF_ERROR(StartRecorders());
  supervisor_ = options_.runtime.make_restarter(
      options_.supervisor_socket, [this](ShardDeath death) { groups_.ShardDied(death); });
  const auto make_clients =
      [this](uint32_t group, const ShardReplySink& sink,
             Poller* poller) -> absl::StatusOr<std::vector<std::unique_ptr<ShardClient>>> {
    const std::vector<std::string>& shards = options_.groups[group];
    std::vector<std::unique_ptr<ShardClient>> clients;
    for (Rank rank = 0; rank < shards.size(); ++rank) {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ShardClient> client,
                            options_.make_shard_client(rank, shards[rank], options_.shard_tls, sink,
                                                       poller, &clock_));
      clients.push_back(std::move(client));
    }
    return clients;
  };
  return groups_.Start(make_clients, &text_out_, &mask_maker_, supervisor_.get(), recorders_);
}

// -- Requests ------------------------------------------------------------------------------------

absl::StatusOr<Admission::Permit> Serving::Enter(const TenantRef& tenant, size_t body_bytes) {
  return Counted(admission_.Enter(tenant, kTextCopies * body_bytes), *tenant);
}

absl::StatusOr<Admission::Permit> Serving::EnterText(const TenantRef& tenant, size_t body_bytes) {
  return Counted(admission_.EnterText(tenant, kTextCopies * body_bytes), *tenant);
}

absl::StatusOr<Admission::Permit> Serving::Counted(absl::StatusOr<Admission::Permit> permit,
                                                   const Tenant& tenant) {
  if (permit.ok()) return permit;
  if (absl::IsResourceExhausted(permit.status())) {
    CountOverload(RejectReasonOf(permit.status()), &tenant);
  } else {
    const bool draining = ErrorReason(permit.status()) == "DRAINING";
    probe_->Rejected(draining ? RejectReason::kDraining : RejectReason::kNotReady, &tenant);
    probe_->Failed(FailureReason::kUnavailable);
  }
  return permit;
}

void Serving::CountOverload(RejectReason reason, const Tenant* tenant) {
  probe_->Rejected(reason, tenant);
  probe_->Failed(FailureReason::kOverloaded);
}

bool Serving::Run(size_t bytes, absl::AnyInvocable<void()>&& read) {
  if (text_in_.Run(bytes, std::move(read))) return true;
  CountOverload(RejectReason::kQueueRequests);
  return false;
}

std::shared_ptr<Answer> Serving::MakeAnswer(const GenerateInput& input, Admission::Permit permit) {
  const SequenceId sequence = next_sequence_.fetch_add(1, std::memory_order_relaxed);
  auto answer = std::make_shared<Answer>(
      sequence, absl::StrCat("req-", absl::Hex(options_.runtime.random_id(), absl::kZeroPad16)),
      input.correlation_id, std::move(permit), &tokens_, this);
  if (options_.tracer != nullptr) answer->SetTrace(BeginTrace(input, *answer));
  {
    absl::MutexLock lock(&mutex_);
    answers_[answer->id()] = answer;
    if (!input.correlation_id.empty()) {
      ids_by_correlation_[input.correlation_id].insert(answer->id());
    }
  }
  return answer;
}

absl::StatusOr<std::vector<std::shared_ptr<Answer>>> Serving::Submit(
    GenerateInput input, std::vector<Admission::Permit> permits, std::shared_ptr<AnswerSink> sink) {
  WEFT_CHECK(!permits.empty());
  absl::optional<int32_t> asked;
  if (input.priority.has_value()) asked = *input.priority;
  const absl::StatusOr<int32_t> priority = ResolvePriority(*permits.front().tenant(), asked);
  if (!priority.ok()) {
    probe_->Failed(FailureReason::kValidation);
    return priority.status();
  }
  input.priority = *priority;
  if (const absl::Status held = AddToolGrammar(*tokenizer_, &input); !held.ok()) {
    probe_->Failed(FailureReason::kValidation);
    return held;
  }
  ArrivedRequest arrived;
  // A drawn seed is a whole number in every reader of JSON: clients give it back to go on.
  arrived.seed = input.seed.has_value() ? *input.seed : options_.runtime.random_id() >> 11;
  arrived.text_workers = text_out_.workers();
  arrived.arrival_us = clock_.NowUs();
  std::vector<std::shared_ptr<Answer>> answers;
  for (Admission::Permit& permit : permits) {
    answers.push_back(MakeAnswer(input, std::move(permit)));
    arrived.writers.emplace_back(answers.back(), sink);
  }
  size_t bytes = TextBytes(input);
  // To compile a grammar may take as long as a long text does.
  if (input.grammar.has_value() && grammars_ != nullptr && !grammars_->Knows(*input.grammar)) {
    bytes = std::max(bytes, TextIn::kLongTextBytes);
  }
  arrived.input = std::move(input);
  auto shared = std::make_shared<ArrivedRequest>(std::move(arrived));
  TextIn::Job job = [this, shared] { PrepareAndSend(std::move(*shared)); };
  if (text_in_.Run(bytes, std::move(job))) return answers;
  for (AnswerWriter& writer : shared->writers) writer.Abandon();
  probe_->Failed(FailureReason::kUnavailable);
  return ShuttingDown();
}

void Serving::PrepareAndSend(ArrivedRequest arrived) {
  auto prepared = std::make_unique<PreparedRequest>();
  absl::Status status = Prepare(text_model(), admission_, groups_.vocab_size(),
                                groups_.prefix_hasher(), clock_, probe_, &arrived, prepared.get());
  if (!status.ok()) {
    CountUnfinished(arrived.writers.front().answer(), CancelPhase::kText, status, probe_);
    for (AnswerWriter& writer : arrived.writers) writer.Fail(status);
    return;
  }
  // Whoever cancels after this point reaches whoever has it.
  if (groups_.Arrive(std::move(prepared))) return;
  probe_->Failed(FailureReason::kUnavailable);
  for (const auto& follower : prepared->followers) follower->writer.Fail(ShuttingDown());
  prepared->writer.Fail(ShuttingDown());
}

bool Serving::Cancel(const Tenant& tenant, const std::string& name) {
  std::vector<std::shared_ptr<Answer>> found;
  {
    absl::MutexLock lock(&mutex_);
    const auto add = [&](const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const auto it = answers_.find(id);
      if (it == answers_.end()) return;
      if (std::shared_ptr<Answer> answer = it->second.lock()) found.push_back(std::move(answer));
    };
    add(name);
    const auto ids = ids_by_correlation_.find(name);
    if (ids != ids_by_correlation_.end()) {
      for (const std::string& id : ids->second) add(id);
    }
  }
  bool any = false;
  for (const std::shared_ptr<Answer>& answer : found) {
    if (answer->tenant()->index != tenant.index) continue;
    if (answer->ended()) continue;  // complete; somebody is still reading
    any = true;
    answer->Cancel(CancelReason::kAdmin);
  }
  return any;
}

std::shared_ptr<RequestTrace> Serving::BeginTrace(const GenerateInput& input,
                                                  const Answer& answer) {
  std::shared_ptr<RequestTrace> trace =
      options_.tracer->Begin(input.traceparent, clock_.NowUs(), options_.runtime.random_id);
  if (trace == nullptr) return nullptr;
  trace->request_id = answer.id();
  trace->tenant = answer.tenant()->name;
  trace->model = options_.served_model_name;
  trace->chat = std::holds_alternative<ChatPrompt>(input.prompt);
  trace->temperature = input.sampling.temperature;
  trace->top_p = input.sampling.top_p;
  trace->top_k = input.sampling.top_k;
  trace->max_tokens = input.max_tokens;
  return trace;
}

void Serving::EndTrace(const Answer& answer) {
  RequestTrace& trace = *answer.trace();
  trace.end_us = clock_.NowUs();
  const AnswerEnd* const end = answer.LastWord();
  if (end == nullptr) {
    trace.code = absl::StatusCode::kCancelled;
  } else {
    trace.code = end->status.code();
    trace.reason = end->reason;
    trace.prompt_tokens = end->prompt_tokens;
    trace.output_tokens = end->output_tokens;
    trace.seed = end->seed;
  }
  options_.tracer->End(answer.trace());
}

void Serving::OnAnswerGone(const Answer& answer) {
  if (answer.trace() != nullptr) EndTrace(answer);
  absl::MutexLock lock(&mutex_);
  answers_.erase(answer.id());
  const auto it = ids_by_correlation_.find(answer.correlation_id());
  if (it == ids_by_correlation_.end()) return;
  it->second.erase(answer.id());
  if (it->second.empty()) ids_by_correlation_.erase(it);
}

template <typename Result>
void Serving::RunCall(size_t bytes, Admission::Permit permit, std::shared_ptr<const TextCall> call,
                      absl::AnyInvocable<absl::StatusOr<Result>(const ReadLimits&)> work,
                      absl::AnyInvocable<void(absl::StatusOr<Result>)> done) {
  // Shared, because a refused job must still be answered.
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  TextIn::Job job = [shared, call = std::move(call), permit = std::move(permit),
                     work = std::move(work)]() mutable {
    const ReadLimits limits = {&permit, call == nullptr ? nullptr : &call->left_flag()};
    if (call == nullptr || !call->left()) (*shared)(work(limits));
    permit.Release();
  };
  if (Run(bytes, std::move(job))) return;
  (*shared)(OverloadedError("TEXT_QUEUE_FULL", "too many texts wait", absl::Seconds(1)));
}

void Serving::Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                       Admission::Permit permit, std::shared_ptr<const TextCall> call,
                       absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) {
  const size_t bytes = TextBytes(prompt);
  RunCall<TokenizeResult>(
      bytes, std::move(permit), std::move(call),
      [this, prompt = std::move(prompt), add_special_tokens](const ReadLimits& limits) mutable {
        return TokenizePrompt(*tokenizer_, chat_template_.get(), admission_.request_tokens_max(),
                              limits, std::move(prompt), add_special_tokens);
      },
      std::move(done));
}

void Serving::Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                         Admission::Permit permit, std::shared_ptr<const TextCall> call,
                         absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  const size_t bytes = ids.size() * sizeof(TokenId);
  RunCall<std::string>(
      bytes, std::move(permit), std::move(call),
      [this, ids = std::move(ids),
       skip_special_tokens](const ReadLimits& limits) -> absl::StatusOr<std::string> {
        // An id of few bytes may stand for many: the text is counted before it is made.
        const size_t text_bytes = std::min(tokenizer_->TokensBytes(ids), kPromptBytesMax);
        WEFT_RETURN_IF_ERROR(limits.permit->AddBytes(kTextCopies * text_bytes));
        return tokenizer_->Decode(ids, skip_special_tokens, kPromptBytesMax);
      },
      std::move(done));
}

ModelFacts Serving::Model() const {
  ModelFacts facts;
  facts.model_name = options_.served_model_name;
  facts.shape = groups_.Shape();
  facts.shards = options_.shards();
  facts.groups = groups_.count();
  facts.requests_max = admission_.requests_max();
  facts.has_chat_template = chat_template_ != nullptr;
  facts.tool_parser = defaults_.tool_parser;
  facts.reasoning_parser = defaults_.reasoning_parser;
  facts.sampling_defaults = defaults_.sampling;
  facts.created_unix_s = created_unix_s_;
  return facts;
}

ServerStatus Serving::Status() const {
  ServerStatus status = groups_.Status();
  if (status.state != ServerState::kReady || chat_template_ == nullptr) return status;
  if (const absl::Status health = options_.template_host->Health(); !health.ok()) {
    status.state = ServerState::kRecovering;
    status.detail = std::string(health.message());
  }
  return status;
}

// -- Life ----------------------------------------------------------------------------------------

absl::Status Serving::FlushPrefixCache() {
  if (groups_.FlushPrefixCache()) return absl::OkStatus();
  return UnavailableError("ENGINE_BUSY", "too many events wait for the engine", absl::Seconds(1));
}

void Serving::StartDrain(absl::Duration timeout) {
  admission_.Close(UnavailableError("DRAINING", "the server is shutting down", absl::Seconds(1)));
  groups_.EndAllAt(clock_.NowUs() + std::max<int64_t>(absl::ToInt64Microseconds(timeout), 1));
}

void Serving::Shutdown() {
  if (shut_down_.exchange(true)) return;
  admission_.Close(
      UnavailableError("SHUTTING_DOWN", "the server is shutting down", absl::Seconds(1)));
  // In the order of a request's walk, so that each stage's last words find the next one there.
  text_in_.Stop();
  groups_.Stop();
  mask_maker_.Stop();
  for (const auto& recorder : recorders_) recorder->Finish();
  supervisor_.reset();  // its news go to the loop's closed queue
  text_out_.Stop();
}

}  // namespace weft::router

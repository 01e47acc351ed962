#include "router/text_pool.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/errors.h"
#include "router/text/prompt_reader.h"

namespace weft::router {
namespace {

// A token's bytes as text of their own: a part of a character becomes U+FFFD.
std::string LossyText(absl::string_view bytes) {
  std::string out;
  Utf8Assembler assembler(/*replace_each_byte=*/false);
  assembler.Push(bytes, &out);
  assembler.Flush(&out);
  return out;
}

}  // namespace

class TextPool::Worker {
 public:
  Worker(const TextPoolContext& context, uint32_t index)
      : context_(context),
        queue_(kTextQueueMax),
        thread_(absl::StrCat("text-", index), [this] { Loop(); }) {}

  struct Refusal {
    std::shared_ptr<LiveRequest> request;
    absl::Status why;
  };
  using Item =
      std::variant<std::shared_ptr<LiveRequest>, Refusal, TextBatch, absl::AnyInvocable<void()>>;

  bool Push(Item&& item) { return queue_.TryPush(std::move(item)); }
  // Gives the batch back when the queue does not take it.
  bool PushBatch(TextBatch&& batch) {
    Item item(std::move(batch));
    if (queue_.TryPush(std::move(item))) return true;
    batch = std::get<TextBatch>(std::move(item));
    return false;
  }
  void Stop() {
    queue_.Close();
    thread_.Join();
  }

 private:
  void Loop();
  void Prepare(std::shared_ptr<LiveRequest> request);
  absl::Status ReadIn(LiveRequest& request);
  void Process(const TextBatch& batch);
  void AddToken(LiveRequest& request, TokenId id, const TextLogprob* logprob);
  void AddStarted(LiveRequest& request);
  void AddEnd(const TextEnd& end);
  void AddFinished(LiveRequest& request, FinishReason reason, std::string text, std::string stop);
  void Fail(LiveRequest& request, const absl::Status& why);
  std::vector<ResponseEvent>& Pending(LiveRequest& request);
  void DeliverPending();
  // Moves out of `events`.
  void Deliver(LiveRequest& request, absl::Span<ResponseEvent> events);
  void WakeAll();

  const TextPoolContext context_;
  BoundedQueue<Item> queue_;
  // Requests still to be prepared: results go first, so that a long prompt delays streams by one
  // tokenisation and no more. Bounded by the permits.
  std::deque<Item> later_;
  // Requests with pending events, and who is to be woken for them.
  std::vector<LiveRequest*> touched_;
  std::vector<Waker*> wakers_;
  // Sinks that had their terminal event; a waker may live in its sink.
  std::vector<std::shared_ptr<ResponseSink>> retired_;
  Thread thread_;
};

void TextPool::Worker::Loop() {
  while (true) {
    std::vector<Item> items =
        queue_.PopAll(later_.empty() ? absl::InfiniteDuration() : absl::ZeroDuration());
    if (items.empty() && later_.empty()) return;  // closed and worked off
    // Batches stay alive until their events are delivered: an end holds its request.
    std::vector<TextBatch> batches;
    for (Item& item : items) {
      if (auto* batch = std::get_if<TextBatch>(&item)) {
        Process(*batch);
        batches.push_back(std::move(*batch));
      } else {
        later_.push_back(std::move(item));
      }
    }
    DeliverPending();
    if (!later_.empty()) {
      Item item = std::move(later_.front());
      later_.pop_front();
      if (auto* request = std::get_if<std::shared_ptr<LiveRequest>>(&item)) {
        Prepare(std::move(*request));
      } else if (auto* refusal = std::get_if<Refusal>(&item)) {
        Fail(*refusal->request, refusal->why);
      } else {
        std::get<absl::AnyInvocable<void()>>(item)();
      }
    }
    WakeAll();
  }
}

// -- In ------------------------------------------------------------------------------------------

void TextPool::Worker::Prepare(std::shared_ptr<LiveRequest> request) {
  LiveRequest& r = *request;
  absl::Status status = ReadIn(r);
  r.validation_us = context_.clock->NowUs() - r.arrival_us;
  // Whoever cancels after this point reaches the engine loop.
  if (status.ok() && context_.engine->Arrive(request)) return;
  if (status.ok()) {
    status = UnavailableError("SHUTTING_DOWN", "the server is shutting down", absl::Seconds(1));
    context_.probe->Failed(FailureReason::kUnavailable);
  } else if (const EndCause cause = r.cancel.load(); cause != EndCause::kNone) {
    context_.probe->Cancelled(static_cast<CancelReason>(static_cast<int>(cause) - 1),
                              CancelPhase::kText);
  } else if (absl::IsResourceExhausted(status)) {
    context_.probe->Rejected(RejectReason::kQueueTokens);
    context_.probe->Failed(FailureReason::kOverloaded);
  } else {
    context_.probe->Failed(FailureReason::kValidation);
  }
  r.permit.Release();
  Fail(r, status);
}

absl::Status TextPool::Worker::ReadIn(LiveRequest& request) {
  if (request.input.deadline_us > 0 && context_.clock->NowUs() >= request.input.deadline_us) {
    request.TryCancel(EndCause::kDeadline);
  }
  if (const EndCause cause = request.cancel.load(); cause != EndCause::kNone) {
    return CancelStatus(cause);
  }
  absl::StatusOr<PromptText> prompt =
      ReadPrompt(*context_.tokenizer, context_.chat_template, context_.vocab_size(),
                 context_.admission->request_tokens_max(), &request.input);
  if (!prompt.ok()) return prompt.status();
  request.prompt = std::move(prompt->ids);
  request.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  absl::StatusOr<uint32_t> output =
      context_.admission->OutputTokens(request.prompt_tokens, request.input.max_tokens);
  if (!output.ok()) {
    context_.probe->Rejected(RejectReason::kTooLong);
    return output.status();
  }
  request.max_new_tokens = *output;
  if (absl::Status s = request.permit.AddTokens(request.prompt_tokens); !s.ok()) return s;
  request.text = std::make_unique<TextState>(TextState{
      Detokenizer(context_.tokenizer, /*skip_special=*/true, /*continues=*/true),
      StopMatcher(std::move(request.input.stop_sequences), request.input.include_stop_sequence),
      request.input.echo_prompt ? std::move(prompt->text) : std::string(),
      {}});
  return absl::OkStatus();
}

// -- Out -----------------------------------------------------------------------------------------

void TextPool::Worker::Process(const TextBatch& batch) {
  for (const TextToken& token : batch.tokens) {
    AddToken(*token.request, token.id,
             token.logprob < 0 ? nullptr : &batch.logprobs[static_cast<size_t>(token.logprob)]);
  }
  for (const TextEnd& end : batch.ends) AddEnd(end);
}

std::vector<ResponseEvent>& TextPool::Worker::Pending(LiveRequest& request) {
  if (request.text->pending.empty()) touched_.push_back(&request);
  return request.text->pending;
}

void TextPool::Worker::AddStarted(LiveRequest& request) {
  if (std::exchange(request.text->started, true)) return;
  Pending(request).emplace_back(
      StartedEvent{request.id, request.prompt_tokens, request.cached_tokens, request.seed});
}

void TextPool::Worker::AddToken(LiveRequest& request, TokenId id, const TextLogprob* logprob) {
  TextState& text = *request.text;
  if (text.ended) return;  // a token behind a stop string
  AddStarted(request);
  ++text.output_tokens;
  StopMatcher::Result matched = text.stop_matcher.Push(text.detokenizer.Push(id));
  TokenEvent event;
  event.id = id;
  if (!text.echo.empty()) {
    event.text = std::exchange(text.echo, std::string());
    event.text += matched.text;
  } else {
    event.text = std::move(matched.text);
  }
  event.special = context_.tokenizer->IsSpecial(id);
  if (request.input.token_texts || request.input.sampling.logprobs) {
    event.token_text = LossyText(context_.tokenizer->TokenBytes(id));
  }
  if (logprob != nullptr) {
    event.has_logprob = true;
    event.logprob = logprob->logprob;
    event.top.reserve(logprob->top.size());
    for (const auto& [top_id, top_logprob] : logprob->top) {
      event.top.push_back(
          {top_id, top_logprob, std::string(context_.tokenizer->TokenBytes(top_id))});
    }
  }
  Pending(request).emplace_back(std::move(event));
  if (!matched.matched) return;
  AddFinished(request, FinishReason::kStopSequence, "", text.stop_matcher.stop(matched.stop_index));
  // The sequence goes on until the engine loop hears of it.
  request.TryCancel(EndCause::kStopMatched);
  context_.engine->CancelSequence(request.sequence);
}

void TextPool::Worker::AddEnd(const TextEnd& end) {
  LiveRequest& request = *end.request;
  TextState& text = *request.text;
  if (text.ended) return;
  if (!end.status.ok()) {
    text.ended = true;
    Pending(request).emplace_back(FailedEvent{end.status});
    return;
  }
  // Text held back until now: an incomplete character, then what might have become a stop string.
  StopMatcher::Result last = text.stop_matcher.Push(text.detokenizer.Flush());
  if (last.matched) {
    AddFinished(request, FinishReason::kStopSequence, std::move(last.text),
                text.stop_matcher.stop(last.stop_index));
  } else {
    AddFinished(request, end.reason, last.text + text.stop_matcher.Flush(), "");
  }
}

void TextPool::Worker::AddFinished(LiveRequest& request, FinishReason reason, std::string text,
                                   std::string stop) {
  const int64_t now_us = context_.clock->NowUs();
  FinishedEvent event;
  event.reason = reason;
  event.text = std::move(text);
  event.prompt_tokens = request.prompt_tokens;
  event.output_tokens = request.text->output_tokens;
  event.stop_sequence = std::move(stop);
  event.seed = request.seed;
  event.queue_us = request.planned_us - request.arrival_us;
  event.inference_us = now_us - request.planned_us;
  FinishedSample sample;
  sample.reason = reason;
  sample.prompt_tokens = request.prompt_tokens;
  sample.output_tokens = request.text->output_tokens;
  sample.prefill_us = request.first_token_us - request.planned_us;
  sample.decode_us = now_us - request.first_token_us;
  sample.total_us = now_us - request.arrival_us;
  context_.probe->Finished(sample);
  request.text->ended = true;
  Pending(request).emplace_back(std::move(event));
}

void TextPool::Worker::DeliverPending() {
  for (LiveRequest* request : touched_) {
    std::vector<ResponseEvent>& pending = request->text->pending;
    Deliver(*request, absl::MakeSpan(pending));
    pending.clear();  // its memory serves the next token
  }
  touched_.clear();
}

void TextPool::Worker::Fail(LiveRequest& request, const absl::Status& why) {
  std::vector<ResponseEvent> events;
  events.emplace_back(FailedEvent{why});
  Deliver(request, absl::MakeSpan(events));
}

void TextPool::Worker::Deliver(LiveRequest& request, absl::Span<ResponseEvent> events) {
  const bool last = std::holds_alternative<FinishedEvent>(events.back()) ||
                    std::holds_alternative<FailedEvent>(events.back());
  // Its id is free before the client can know that it ended.
  if (last) context_.on_ending(request);
  Waker* waker = request.sink->Deliver(events);
  if (last) {
    retired_.push_back(std::move(request.sink));
    context_.on_ended();
  }
  if (waker != nullptr && std::find(wakers_.begin(), wakers_.end(), waker) == wakers_.end()) {
    wakers_.push_back(waker);
  }
}

void TextPool::Worker::WakeAll() {
  for (Waker* waker : wakers_) waker->Wake();
  wakers_.clear();
  retired_.clear();
}

// -- Pool ----------------------------------------------------------------------------------------

TextPool::TextPool(const TextPoolContext& context, uint32_t threads) {
  WEFT_CHECK(threads > 0);
  for (uint32_t i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>(context, i));
}

TextPool::~TextPool() { Stop(); }

bool TextPool::Submit(std::shared_ptr<LiveRequest> request) {
  Worker& worker = *workers_[request->worker];
  return worker.Push(std::move(request));
}

bool TextPool::Refuse(std::shared_ptr<LiveRequest> request, absl::Status why) {
  Worker& worker = *workers_[request->worker];
  return worker.Push(Worker::Refusal{std::move(request), std::move(why)});
}

bool TextPool::Post(uint32_t worker, TextBatch&& batch) {
  return workers_[worker]->PushBatch(std::move(batch));
}

bool TextPool::Run(absl::AnyInvocable<void()> job) {
  const uint32_t worker = next_worker_.fetch_add(1, std::memory_order_relaxed) % size();
  return workers_[worker]->Push(std::move(job));
}

void TextPool::Stop() {
  for (auto& worker : workers_) worker->Stop();
}

}  // namespace weft::router

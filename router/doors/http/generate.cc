#include "router/doors/http/generate.h"

#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/sse.h"
#include "router/errors.h"

namespace weft::router {

ReadGeneration MakeGeneration(std::vector<GenerateInput> inputs, uint32_t choices,
                              std::unique_ptr<ResponseFormatter> formatter,
                              const std::vector<std::string>& ignored) {
  ReadGeneration generation{std::move(inputs), choices, std::move(formatter), {}};
  AddIgnoredHeader(ignored, &generation.headers);
  return generation;
}

void ResponseFormatter::Silence(std::string* out) { SseComment(out); }

void WriteResume(const AnswerHead& head, JsonWriter* json) {
  json->Key("resume").BeginObject().Key("seed").Unsigned(head.seed);
  json->Key("fingerprint").String(head.fingerprint).EndObject();
  if (!head.resumed.has_value()) return;
  json->Key("resumed").String(ResumeMatchName(head.resumed->exact));
}

std::shared_ptr<HttpExchange> GenerateExchange::Start(
    const DoorContext& doors, HttpRequest request, Admission::Permit permit, GenerationReader read,
    const std::function<HttpReply(const absl::Status&)>& refuse, HttpResponder& responder,
    IoWaker& waker) {
  const std::shared_ptr<GenerateExchange> exchange(new GenerateExchange(&responder, &waker));
  const size_t bytes = request.body.size();
  if (bytes < kLongBodyBytes) {
    std::optional<HttpReply> refusal =
        exchange->ReadAndSubmit(doors, std::move(request), std::move(permit), read);
    if (!refusal.has_value()) return exchange;
    responder.Reply(*std::move(refusal));
    return nullptr;
  }
  absl::AnyInvocable<void()> job = [exchange, &doors, request = std::move(request),
                                    permit = std::move(permit), read = std::move(read)]() mutable {
    std::optional<HttpReply> refusal =
        exchange->ReadAndSubmit(doors, std::move(request), std::move(permit), read);
    if (!refusal.has_value()) return;
    {
      absl::MutexLock lock(&exchange->mutex_);
      exchange->refusal_ = std::move(refusal);
    }
    if (Waker* const waker = exchange->OnNews()) waker->Wake();
  };
  if (doors.entrance().Run(bytes, std::move(job))) return exchange;
  responder.Reply(
      refuse(OverloadedError("TEXT_QUEUE_FULL", "too many texts wait", absl::Seconds(1))));
  return nullptr;
}

std::optional<HttpReply> GenerateExchange::ReadAndSubmit(const DoorContext& doors,
                                                         HttpRequest request,
                                                         Admission::Permit permit,
                                                         const GenerationReader& read) {
  {
    absl::MutexLock lock(&mutex_);
    if (gone_ != CancelReason::kNone) {
      doors.probe().Cancelled(gone_, CancelPhase::kText);
      return std::nullopt;
    }
  }
  std::string traceparent = std::move(request.traceparent);
  const TenantRef tenant = request.tenant;
  std::variant<ReadGeneration, HttpReply> result = read(std::move(request));
  if (auto* reply = std::get_if<HttpReply>(&result)) return std::move(*reply);
  ReadGeneration& generation = std::get<ReadGeneration>(result);
  for (GenerateInput& input : generation.inputs) input.traceparent = traceparent;
  {
    absl::MutexLock lock(&mutex_);
    new_formatter_ = std::move(generation.formatter);
    new_headers_ = std::move(generation.headers);
  }
  absl::StatusOr<Answers> answers =
      SubmitAll(doors, std::move(generation), tenant, std::move(permit));
  if (!answers.ok()) {
    // The formatter knows what the body's own door calls a field.
    absl::MutexLock lock(&mutex_);
    HttpReply reply = new_formatter_->Error(answers.status());
    reply.headers.insert(reply.headers.end(), new_headers_.begin(), new_headers_.end());
    return reply;
  }
  CancelReason gone;
  {
    absl::MutexLock lock(&mutex_);
    gone = gone_;
    if (gone != CancelReason::kNone) {
      answers->Close();
      answers->Cancel(gone);
    }
    new_answers_ = *std::move(answers);
  }
  if (gone != CancelReason::kNone) return std::nullopt;
  if (Waker* const waker = OnNews()) waker->Wake();  // what was written so far found no answer here
  return std::nullopt;
}

absl::StatusOr<Answers> GenerateExchange::SubmitAll(const DoorContext& doors,
                                                    ReadGeneration generation,
                                                    const TenantRef& tenant,
                                                    Admission::Permit permit) {
  // All may come in, or none does.
  std::vector<std::vector<Admission::Permit>> permits(generation.inputs.size());
  permits[0].push_back(std::move(permit));
  for (std::vector<Admission::Permit>& of_prompt : permits) {
    while (of_prompt.size() < generation.choices) {
      WEFT_ASSIGN_OR_RETURN(Admission::Permit one, doors.Enter(tenant, 0));
      of_prompt.push_back(std::move(one));
    }
  }
  std::vector<std::shared_ptr<Answer>> answers;
  for (size_t i = 0; i < permits.size(); ++i) {
    absl::StatusOr<std::vector<std::shared_ptr<Answer>>> some = doors.entrance().SubmitChoices(
        std::move(generation.inputs[i]), std::move(permits[i]), shared_from_this());
    if (!some.ok()) {
      for (const auto& answer : answers) {
        answer->Close();
        answer->Cancel(CancelReason::kClientGone);
      }
      return some.status();
    }
    for (auto& answer : *some) answers.push_back(std::move(answer));
  }
  return Answers(std::move(answers));
}

Waker* GenerateExchange::OnNews() {
  if (!dirty_.exchange(true, std::memory_order_acq_rel)) waker_->Add(shared_from_this());
  return waker_;
}

bool GenerateExchange::TakeAnswer() {
  if (answers_.has_value()) return true;
  absl::MutexLock lock(&mutex_);
  if (refusal_.has_value()) {
    std::exchange(responder_, nullptr)->Reply(*std::move(refusal_));
    return false;
  }
  if (!new_answers_.has_value()) return false;
  answers_ = std::exchange(new_answers_, std::nullopt);
  formatter_ = std::move(new_formatter_);
  headers_ = std::move(new_headers_);
  return true;
}

void GenerateExchange::OnWake() {
  dirty_.store(false, std::memory_order_release);
  // While the client reads slowly, what is written stays in the answer's log; the connection calls
  // again when it can write.
  if (responder_ == nullptr || !responder_->writable()) return;
  if (!TakeAnswer() || !answers_->Fetch()) return;
  const bool ended = Format();
  Send(ended);
}

bool GenerateExchange::Format() {
  while (const std::optional<AnswerEvent> event = answers_->Next()) {
    if (event->head != nullptr) formatter_->Started(event->index, *event->head);
    if (event->token != nullptr && first_token_us_ == 0) {
      first_token_us_ = MonotonicClock().NowUs() - start_us_;
    }
    if (event->end == nullptr || event->end->status.ok()) {
      formatter_->Step(event->index, event->token, event->end, &out_);
      continue;
    }
    // One choice that fails fails the request; nobody reads the others any more.
    const absl::Status why = event->end->status;
    answers_->Close();
    answers_->Cancel(CancelReason::kClientGone);
    if (begun_ || !out_.empty()) {
      formatter_->Fail(why, &out_);
    } else {
      failed_ = why;
    }
    return true;
  }
  return answers_->ended();
}

void GenerateExchange::Send(bool ended) {
  if (!failed_.ok()) {
    std::exchange(responder_, nullptr)->Reply(WithHeaders(formatter_->Error(failed_)));
    return;
  }
  if (!formatter_->streaming()) {
    if (ended) std::exchange(responder_, nullptr)->Reply(WithHeaders(formatter_->Reply()));
    return;
  }
  if (out_.empty()) return;
  if (!begun_) responder_->BeginStream(WithHeaders(formatter_->Reply()));
  begun_ = true;
  responder_->Write(out_);
  out_.clear();
  if (ended) {
    std::exchange(responder_, nullptr)->EndStream();
  } else {
    responder_->Flush();  // may find the client gone and call OnGone
  }
}

HttpReply GenerateExchange::WithHeaders(HttpReply reply) const {
  reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
  const AnswerHead* const head = answers_.has_value() ? answers_->head() : nullptr;
  if (head == nullptr) return reply;
  reply.headers.emplace_back("x-weft-fingerprint", head->fingerprint);
  if (head->resumed.has_value()) {
    reply.headers.emplace_back("x-weft-resume", ResumeMatchName(head->resumed->exact));
  }
  return reply;
}

void GenerateExchange::OnSilence() {
  // A whole answer has no head to send before it is there.
  if (responder_ == nullptr || !TakeAnswer() || !formatter_->streaming()) return;
  if (!begun_) responder_->BeginStream(WithHeaders(formatter_->Reply()));
  begun_ = true;
  formatter_->Silence(&out_);
  responder_->Write(out_);
  out_.clear();
  responder_->Flush();
}

void GenerateExchange::Describe(AccessRecord* record) const {
  if (answers_.has_value()) answers_->Describe(record);
  if (ended_early_ != CancelReason::kNone) record->cause = CancelReasonName(ended_early_);
  record->first_token_us = first_token_us_;
}

bool GenerateExchange::LogLater(const AccessRecord& record) {
  if (ended_early_ == CancelReason::kNone) return false;
  late_record_ = record;
  late_route_ = std::string(record.route);
  late_record_->route = late_route_;
  return true;
}

GenerateExchange::~GenerateExchange() {
  if (!late_record_.has_value()) return;
  {
    absl::MutexLock lock(&mutex_);
    if (!answers_.has_value()) answers_ = std::exchange(new_answers_, std::nullopt);
  }
  if (answers_.has_value()) answers_->Fetch();
  Describe(&*late_record_);
  LogAccess(*late_record_);
}

void GenerateExchange::OnGone(CancelReason reason) {
  responder_ = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    gone_ = reason;
    if (!answers_.has_value()) answers_ = std::exchange(new_answers_, std::nullopt);
  }
  if (answers_.has_value() && answers_->complete()) return;
  ended_early_ = reason;
  if (!answers_.has_value()) return;
  answers_->Close();
  answers_->Cancel(reason);
}

}  // namespace weft::router

#include "router/doors/http/generate.h"

#include <utility>

#include "common/limits.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/sse.h"
#include "router/errors.h"

namespace weft::router {

ReadGeneration MakeGeneration(GenerateInput input, std::unique_ptr<ResponseFormatter> formatter,
                              const std::vector<std::string>& ignored) {
  ReadGeneration generation{std::move(input), std::move(formatter), {}};
  AddIgnoredHeader(ignored, &generation.headers);
  return generation;
}

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
  std::variant<ReadGeneration, HttpReply> result = read(std::move(request));
  if (auto* reply = std::get_if<HttpReply>(&result)) return std::move(*reply);
  ReadGeneration& generation = std::get<ReadGeneration>(result);
  generation.input.traceparent = std::move(traceparent);
  {
    absl::MutexLock lock(&mutex_);
    new_formatter_ = std::move(generation.formatter);
    new_headers_ = std::move(generation.headers);
  }
  absl::StatusOr<std::shared_ptr<Answer>> answer =
      doors.entrance().Submit(std::move(generation.input), std::move(permit), shared_from_this());
  if (!answer.ok()) {
    // The formatter knows what the body's own door calls a field.
    absl::MutexLock lock(&mutex_);
    HttpReply reply = new_formatter_->Error(answer.status());
    reply.headers.insert(reply.headers.end(), new_headers_.begin(), new_headers_.end());
    return reply;
  }
  CancelReason gone;
  {
    absl::MutexLock lock(&mutex_);
    new_answer_ = *answer;
    gone = gone_;
  }
  if (gone != CancelReason::kNone) {
    (*answer)->Close();
    (*answer)->Cancel(gone);
  } else if (Waker* const waker = OnNews()) {
    waker->Wake();  // what was written so far found no answer here
  }
  return std::nullopt;
}

Waker* GenerateExchange::OnNews() {
  if (!dirty_.exchange(true, std::memory_order_acq_rel)) waker_->Add(shared_from_this());
  return waker_;
}

bool GenerateExchange::TakeAnswer() {
  if (answer_ != nullptr) return true;
  absl::MutexLock lock(&mutex_);
  if (refusal_.has_value()) {
    std::exchange(responder_, nullptr)->Reply(*std::move(refusal_));
    return false;
  }
  if (new_answer_ == nullptr) return false;
  answer_ = std::move(new_answer_);
  formatter_ = std::move(new_formatter_);
  headers_ = std::move(new_headers_);
  return true;
}

void GenerateExchange::OnWake() {
  dirty_.store(false, std::memory_order_release);
  // While the client reads slowly, what is written stays in the answer's log; the connection calls
  // again when it can write.
  if (responder_ == nullptr || !responder_->writable()) return;
  if (!TakeAnswer() || !answer_->Fetch()) return;
  const bool ended = Format();
  Send(ended);
}

bool GenerateExchange::Format() {
  const AnswerHead* const head = answer_->head();
  if (head != nullptr && !std::exchange(started_, true)) formatter_->Started(*head);
  while (answer_->Next(&token_)) {
    const AnswerEnd* const end = answer_->end();
    const AnswerEnd* const last = end != nullptr && end->status.ok() ? end : nullptr;
    if (first_token_us_ == 0) first_token_us_ = MonotonicClock().NowUs() - start_us_;
    formatter_->Step(&token_, last, &out_);
    if (last != nullptr) return true;
  }
  const AnswerEnd* const end = answer_->end();
  if (end == nullptr) return false;
  if (end->status.ok()) {
    formatter_->Step(nullptr, end, &out_);
  } else if (begun_ || !out_.empty()) {
    formatter_->Fail(end->status, &out_);
  } else {
    failed_ = end->status;
  }
  return true;
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
  const AnswerHead* const head = answer_ == nullptr ? nullptr : answer_->head();
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
  SseComment(&out_);
  responder_->Write(out_);
  out_.clear();
  responder_->Flush();
}

void GenerateExchange::Describe(AccessRecord* record) const {
  if (answer_ != nullptr) DescribeAnswer(*answer_, record);
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
    if (answer_ == nullptr) answer_ = std::move(new_answer_);
  }
  if (answer_ != nullptr) answer_->Fetch();
  Describe(&*late_record_);
  LogAccess(*late_record_);
}

void GenerateExchange::OnGone(CancelReason reason) {
  responder_ = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    gone_ = reason;
    if (answer_ == nullptr) answer_ = std::move(new_answer_);
  }
  if (answer_ != nullptr && answer_->end() != nullptr) return;
  ended_early_ = reason;
  if (answer_ == nullptr) return;
  answer_->Close();
  answer_->Cancel(reason);
}

}  // namespace weft::router

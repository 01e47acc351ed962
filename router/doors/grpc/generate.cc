#include "router/doors/grpc/generate.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/status.h"
#include "grpcpp/server_context.h"
#include "router/doors/grpc/caller.h"
#include "router/doors/grpc/errors.h"
#include "router/doors/grpc/messages.h"
#include "router/doors/grpc/request.h"
#include "router/errors.h"
#include "router/prompt_scores.h"

namespace weft::router {
namespace {

int64_t NowUs() { return MonotonicClock().NowUs(); }

weft::v1::FinishReason WireReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return weft::v1::FINISH_REASON_LENGTH;
    case FinishReason::kEosToken:
      return weft::v1::FINISH_REASON_EOS_TOKEN;
    case FinishReason::kStopSequence:
      return weft::v1::FINISH_REASON_STOP_SEQUENCE;
    case FinishReason::kStopToken:
      return weft::v1::FINISH_REASON_STOP_TOKEN;
  }
  return weft::v1::FINISH_REASON_UNSPECIFIED;
}

void FillFinish(uint32_t index, const AnswerEnd& finished, weft::v1::GenerateResponse* response) {
  if (!finished.text.empty()) {
    response->mutable_output()->set_index(index);
    *response->mutable_output()->mutable_text() += finished.text;
  }
  weft::v1::FinishInfo* info = response->mutable_finish_info();
  info->set_index(index);
  info->set_reason(WireReason(finished.reason));
  info->set_prompt_tokens(finished.prompt_tokens);
  info->set_output_tokens(finished.output_tokens);
  info->set_stop_sequence(finished.stop_sequence);
  if (finished.reason == FinishReason::kStopToken) info->set_stop_token_id(finished.stop_token);
}

void FillTop(absl::Span<const TokenLogprob> from,
             google::protobuf::RepeatedPtrField<weft::v1::TokenLogprob>* out) {
  for (const TokenLogprob& top : from) {
    weft::v1::TokenLogprob* one = out->Add();
    one->set_id(top.id);
    one->set_logprob(top.logprob);
  }
}

void FillPromptDetails(const PromptScores& scores, weft::v1::PromptInfo* info) {
  for (size_t i = 0; i < scores.tokens(); ++i) {
    const AnswerToken token = scores.Token(i);
    weft::v1::PromptToken* out = info->add_prompt_details();
    out->set_id(token.id);
    if (!token.has_logprob) continue;
    out->set_logprob(token.logprob);
    out->set_rank(scores.Rank(i));
    FillTop(token.top, out->mutable_top());
  }
}

}  // namespace

// -- Start ---------------------------------------------------------------------------------------

absl::StatusOr<GenerateInput> GenerateCall::Read() {
  WEFT_RETURN_IF_ERROR(
      TakeMessage(message(), door_.message_bytes_max, &request_,
                  "is not a GenerateRequest: malformed, or text in it is not UTF-8"));
  std::vector<std::string> ignored;
  absl::StatusOr<GenerateInput> input = ReadGenerate(*door_.doors, &request_, &ignored);
  FreePrompt(&request_);  // `input` has it
  if (input.ok() && !ignored.empty()) {
    if (ignored.size() > kIgnoredNamesMax) ignored.resize(kIgnoredNamesMax);
    context_->AddInitialMetadata("x-weft-ignored-fields", absl::StrJoin(ignored, ", "));
  }
  return input;
}

void GenerateCall::OnMessage() {
  absl::StatusOr<Admission::Permit> permit = door_.doors->Enter(tenant(), message()->Length());
  if (!permit.ok()) return Refuse(permit.status());
  absl::StatusOr<GenerateInput> input = Read();
  if (!input.ok()) {
    door_.doors->probe().Failed(FailureReason::kValidation);
    return End(input.status());
  }
  Submit(*std::move(input), *std::move(permit));
}

void GenerateCall::Submit(GenerateInput input, Admission::Permit permit) {
  // Sent with the first message.
  if (input.correlation_id.empty()) input.correlation_id = NewRequestId();
  context_->AddInitialMetadata("x-request-id", input.correlation_id);
  input.traceparent = traceparent();
  const int64_t deadline_us = DeadlineUsOf(*context_);
  if (deadline_us != std::numeric_limits<int64_t>::max()) input.deadline_us = deadline_us;
  {
    absl::MutexLock lock(&mutex_);
    deadline_us_ = input.deadline_us;
  }
  const uint32_t choices = std::max(1u, request_.sampling().n());
  std::vector<Admission::Permit> permits;
  permits.push_back(std::move(permit));
  while (permits.size() < choices) {
    absl::StatusOr<Admission::Permit> one = door_.doors->Enter(tenant(), 0);
    if (!one.ok()) return Refuse(one.status());
    permits.push_back(*std::move(one));
  }
  absl::StatusOr<std::vector<std::shared_ptr<Answer>>> answers =
      door_.doors->entrance().SubmitChoices(
          std::move(input), std::move(permits),
          std::static_pointer_cast<GenerateCall>(shared_from_this()));
  if (!answers.ok()) return End(answers.status());
  Answers unwanted = Answers(*answers);
  bool cancelled = false;
  CancelReason reason = CancelReason::kClientGone;
  {
    absl::MutexLock lock(&mutex_);
    answers_.emplace(*std::move(answers));
    cancelled = cancelled_;
    reason = cancel_reason_;
  }
  if (cancelled) unwanted.Cancel(reason);
  Pump();  // what was written so far found no answer here
}

// -- Events --------------------------------------------------------------------------------------

Waker* GenerateCall::OnNews() {
  absl::MutexLock lock(&mutex_);
  if (!dirty_) {
    dirty_ = true;
    door_.calls->MarkDirty(shared_from_this());
  }
  return door_.calls;
}

void GenerateEvents::FillToken(uint32_t index, const AnswerToken& token,
                               weft::v1::GenerateResponse* response) const {
  weft::v1::Output* output = response->mutable_output();
  output->set_index(index);
  output->set_text(token.text);
  if (!request_.response().omit_token_ids()) output->add_token_ids(token.id);
  if (!token.has_logprob) return;
  weft::v1::TokenDetail* detail = output->add_details();
  detail->set_logprob(token.logprob);
  FillTop(token.top, detail->mutable_top());
}

void GenerateEvents::FillHead(const Answers& answers, const AnswerHead& head,
                              weft::v1::GenerateResponse* response) {
  if (std::exchange(head_sent_, true)) return;
  weft::v1::PromptInfo* info = response->mutable_prompt_info();
  info->set_request_id(answers.first().name());
  info->set_prompt_tokens(head.prompt_tokens);
  info->set_cached_tokens(head.cached_tokens);
  info->set_seed(head.seed);
  info->set_fingerprint(head.fingerprint);
  if (head.prompt_scores != nullptr) FillPromptDetails(*head.prompt_scores, info);
  if (head.resumed.has_value()) {
    info->set_resume_match(head.resumed->exact ? weft::v1::RESUME_MATCH_EXACT
                                               : weft::v1::RESUME_MATCH_INEXACT);
  }
}

bool GenerateEvents::TakeNext(Answers* answers, bool ends_only,
                              weft::v1::GenerateResponse* response, bool* last,
                              absl::Status* status) {
  if (!answers->Fetch()) return false;
  std::optional<AnswerEvent> event;
  do {
    event = answers->Next();
  } while (ends_only && event.has_value() && event->end == nullptr);
  if (!event.has_value()) return false;
  if (event->end != nullptr && !event->end->status.ok()) {
    *status = WithGrpcField(event->end->status, request_);
    return true;
  }
  if (event->token != nullptr) {
    begun_ = true;
    FillToken(event->index, *event->token, response);
  }
  if (event->end != nullptr) FillFinish(event->index, *event->end, response);
  *last = answers->ended();
  if (event->head != nullptr) FillHead(*answers, *event->head, response);
  return true;
}

bool GenerateCall::TakeNext(weft::v1::GenerateResponse* response, bool* last,
                            absl::Status* status) {
  // Of a cancelled request nobody reads the tokens: only an end counts.
  if (!answers_.has_value() || !events_.TakeNext(&*answers_, cancelled_, response, last, status)) {
    return false;
  }
  if (events_.begun() && first_token_us_ == 0) first_token_us_ = NowUs() - start_us_;
  return true;
}

void GenerateCall::Pump() {
  weft::v1::GenerateResponse response;
  bool last = false;
  absl::Status status;
  std::optional<Answers> unwanted;
  {
    absl::MutexLock lock(&mutex_);
    dirty_ = false;
    if (write_start_us_ != 0 || ended_ || !TakeNext(&response, &last, &status)) return;
    write_start_us_ = NowUs();
    if (!status.ok() || last) {
      ended_ = true;
      code_ = static_cast<grpc::StatusCode>(status.code());
    }
    if (!status.ok()) unwanted = answers_;
  }
  if (!status.ok()) {
    // One choice that fails fails the request; nobody reads the others any more.
    if (unwanted.has_value()) unwanted->Cancel(CancelReason::kClientGone);
    Finish(ToGrpcStatus(status));
    return;
  }
  EncodeMessage(response, &buffer_);
  if (last) {
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    StartWrite(&buffer_);
  }
}

void GenerateCall::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    write_start_us_ = 0;
  }
  if (!ok) CancelRequest(CancelReason::kClientGone);
  Pump();
}

// -- Ends ----------------------------------------------------------------------------------------

void GenerateCall::OnCancel() {
  bool late = false;
  {
    // It may come while Submit runs.
    absl::MutexLock lock(&mutex_);
    late = deadline_us_ != 0 && NowUs() >= deadline_us_;
  }
  CancelRequest(late ? CancelReason::kDeadline : CancelReason::kClientGone);
}

void GenerateCall::CancelRequest(CancelReason reason) {
  std::optional<Answers> answers;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    cancel_reason_ = reason;
    answers = answers_;
  }
  // The end follows and finishes the call.
  if (answers.has_value()) answers->Cancel(reason);
}

void GenerateCall::Describe(AccessRecord* record) {
  absl::MutexLock lock(&mutex_);
  if (answers_.has_value()) answers_->Describe(record);
  if (cancelled_) record->cause = CancelReasonName(cancel_reason_);
  record->first_token_us = first_token_us_;
}

}  // namespace weft::router

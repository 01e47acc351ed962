#include "router/doors/grpc/generate.h"

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
  }
  return weft::v1::FINISH_REASON_UNSPECIFIED;
}

void FillFinish(const AnswerEnd& finished, weft::v1::GenerateResponse* response) {
  if (!finished.text.empty()) *response->mutable_output()->mutable_text() += finished.text;
  weft::v1::FinishInfo* info = response->mutable_finish_info();
  info->set_reason(WireReason(finished.reason));
  info->set_prompt_tokens(finished.prompt_tokens);
  info->set_output_tokens(finished.output_tokens);
  info->set_stop_sequence(finished.stop_sequence);
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
    if (ignored.size() > 16) ignored.resize(16);
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
  absl::StatusOr<std::shared_ptr<Answer>> answer =
      door_.doors->entrance().Submit(std::move(input), std::move(permit),
                                     std::static_pointer_cast<GenerateCall>(shared_from_this()));
  if (!answer.ok()) return End(answer.status());
  bool cancelled = false;
  CancelReason reason = CancelReason::kClientGone;
  {
    absl::MutexLock lock(&mutex_);
    answer_ = *answer;
    cancelled = cancelled_;
    reason = cancel_reason_;
  }
  if (cancelled) (*answer)->Cancel(reason);
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

void GenerateCall::FillToken(const AnswerToken& token, weft::v1::GenerateResponse* response) const {
  weft::v1::Output* output = response->mutable_output();
  output->set_text(token.text);
  if (!request_.response().omit_token_ids()) output->add_token_ids(token.id);
  if (!token.has_logprob) return;
  weft::v1::TokenDetail* detail = output->add_details();
  detail->set_logprob(token.logprob);
  for (const TokenLogprob& top : token.top) {
    weft::v1::TokenLogprob* one = detail->add_top();
    one->set_id(top.id);
    one->set_logprob(top.logprob);
  }
}

void GenerateCall::FillHead(weft::v1::GenerateResponse* response) {
  const AnswerHead* const head = answer_->head();
  if (head == nullptr || std::exchange(head_sent_, true)) return;
  weft::v1::PromptInfo* info = response->mutable_prompt_info();
  info->set_request_id(answer_->name());
  info->set_prompt_tokens(head->prompt_tokens);
  info->set_cached_tokens(head->cached_tokens);
  info->set_seed(head->seed);
  info->set_fingerprint(head->fingerprint);
  if (head->resumed.has_value()) {
    info->set_resume_match(head->resumed->exact ? weft::v1::RESUME_MATCH_EXACT
                                                : weft::v1::RESUME_MATCH_INEXACT);
  }
}

bool GenerateCall::TakeNext(weft::v1::GenerateResponse* response, bool* last,
                            absl::Status* status) {
  if (answer_ == nullptr || !answer_->Fetch()) return false;
  bool token = false;
  // Of a cancelled request nobody reads the tokens: only the end counts.
  while (answer_->Next(&token_)) {
    if (cancelled_) continue;
    if (first_token_us_ == 0) first_token_us_ = NowUs() - start_us_;
    FillToken(token_, response);
    token = true;
    break;
  }
  const AnswerEnd* const end = answer_->end();
  if (end != nullptr && end->status.ok()) {
    FillFinish(*end, response);
    *last = true;
  } else if (end != nullptr && !token) {
    *status = WithGrpcField(end->status, request_);
    return true;
  }
  if (!token && !*last) return false;
  FillHead(response);
  return true;
}

void GenerateCall::Pump() {
  weft::v1::GenerateResponse response;
  bool last = false;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    dirty_ = false;
    if (write_start_us_ != 0 || ended_ || !TakeNext(&response, &last, &status)) return;
    write_start_us_ = NowUs();
    if (!status.ok() || last) {
      ended_ = true;
      code_ = static_cast<grpc::StatusCode>(status.code());
    }
  }
  if (!status.ok()) {
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
  std::shared_ptr<Answer> answer;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    cancel_reason_ = reason;
    answer = answer_;
  }
  // The end follows and finishes the call.
  if (answer != nullptr) answer->Cancel(reason);
}

void GenerateCall::Describe(AccessRecord* record) {
  absl::MutexLock lock(&mutex_);
  if (answer_ != nullptr) DescribeAnswer(*answer_, record);
  if (cancelled_) record->cause = CancelReasonName(cancel_reason_);
  record->first_token_us = first_token_us_;
}

}  // namespace weft::router

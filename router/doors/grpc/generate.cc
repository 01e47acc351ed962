#include "router/doors/grpc/generate.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/clock.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/server_context.h"
#include "router/doors/access_log.h"
#include "router/doors/grpc/caller.h"
#include "router/doors/grpc/errors.h"
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

// The call's deadline as monotonic microseconds; 0 = none.
int64_t DeadlineUs(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  const auto now = std::chrono::system_clock::now();
  // No deadline is the largest time there is; a year from now is as good.
  if (deadline - now > std::chrono::hours(24 * 365)) return 0;
  return NowUs() + std::chrono::duration_cast<std::chrono::microseconds>(deadline - now).count();
}

}  // namespace

// -- Calls ---------------------------------------------------------------------------------------

void GrpcCalls::MarkDirty(std::shared_ptr<GenerateReactor> call) {
  absl::MutexLock lock(&mutex_);
  dirty_.push_back(std::move(call));
}

void GrpcCalls::Wake() {
  std::vector<std::shared_ptr<GenerateReactor>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls.swap(dirty_);
  }
  for (const std::shared_ptr<GenerateReactor>& call : calls) call->Pump();
}

void GrpcCalls::Add(GenerateReactor* call) {
  absl::MutexLock lock(&mutex_);
  all_.insert(call);
}

void GrpcCalls::Remove(GenerateReactor* call) {
  absl::MutexLock lock(&mutex_);
  all_.erase(call);
}

void GrpcCalls::CheckSlow(int64_t now_us, int64_t timeout_us) {
  std::vector<std::shared_ptr<GenerateReactor>> calls;
  {
    absl::MutexLock lock(&mutex_);
    for (GenerateReactor* call : all_) calls.push_back(call->shared_from_this());
  }
  for (const std::shared_ptr<GenerateReactor>& call : calls) call->CheckSlow(now_us, timeout_us);
}

// -- Start ---------------------------------------------------------------------------------------

GenerateReactor::GenerateReactor(DoorContext* doors, GrpcCalls* calls,
                                 grpc::CallbackServerContext* context)
    : doors_(doors),
      calls_(calls),
      context_(context),
      start_us_(NowUs()),
      client_(PeerOf(*context)),
      traceparent_(MetadataOf(*context, "traceparent")) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateReactor::Start(
    DoorContext* doors, GrpcCalls* calls, grpc::CallbackServerContext* context,
    grpc::ByteBuffer* request, size_t message_bytes_max) {
  std::shared_ptr<GenerateReactor> call(new GenerateReactor(doors, calls, context));
  call->self_ = call;
  calls->Add(call.get());
  call->Submit(request, message_bytes_max);
  return call.get();
}

void GenerateReactor::Submit(grpc::ByteBuffer* bytes, size_t message_bytes_max) {
  absl::StatusOr<Admission::Permit> permit =
      doors_->Enter(CredentialsOf(*context_), bytes->Length());
  if (!permit.ok()) return End(permit.status());
  const absl::Status fits = CheckMessageBytes(bytes->Length(), message_bytes_max);
  if (!fits.ok()) {
    doors_->probe().Failed(FailureReason::kValidation);
    return End(fits);
  }
  if (!grpc::SerializationTraits<weft::v1::GenerateRequest>::Deserialize(bytes, &request_).ok()) {
    doors_->probe().Failed(FailureReason::kValidation);
    return End(FieldError("request",
                          "is not a GenerateRequest: malformed, or text in it is not "
                          "UTF-8"));
  }
  std::vector<std::string> ignored;
  absl::StatusOr<GenerateInput> input = ReadGenerate(*doors_, request_, &ignored);
  FreePrompt(&request_);  // `input` has it
  if (!input.ok()) {
    doors_->probe().Failed(FailureReason::kValidation);
    return End(input.status());
  }
  // Sent with the first message.
  if (input->correlation_id.empty()) input->correlation_id = NewRequestId();
  context_->AddInitialMetadata("x-request-id", input->correlation_id);
  if (!ignored.empty()) {
    if (ignored.size() > 16) ignored.resize(16);
    context_->AddInitialMetadata("x-weft-ignored-fields", absl::StrJoin(ignored, ", "));
  }
  deadline_us_ = DeadlineUs(*context_);
  input->deadline_us = deadline_us_;
  absl::StatusOr<std::shared_ptr<Answer>> answer =
      doors_->entrance().Submit(*std::move(input), *std::move(permit), shared_from_this());
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

Waker* GenerateReactor::OnNews() {
  absl::MutexLock lock(&mutex_);
  if (!dirty_) {
    dirty_ = true;
    calls_->MarkDirty(shared_from_this());
  }
  return calls_;
}

void GenerateReactor::FillToken(const AnswerToken& token,
                                weft::v1::GenerateResponse* response) const {
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

void GenerateReactor::FillHead(weft::v1::GenerateResponse* response) {
  const AnswerHead* const head = answer_->head();
  if (head == nullptr || std::exchange(head_sent_, true)) return;
  weft::v1::PromptInfo* info = response->mutable_prompt_info();
  info->set_request_id(answer_->name());
  info->set_prompt_tokens(head->prompt_tokens);
  info->set_cached_tokens(head->cached_tokens);
  info->set_seed(head->seed);
}

bool GenerateReactor::TakeNext(weft::v1::GenerateResponse* response, bool* last,
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

void GenerateReactor::Pump() {
  weft::v1::GenerateResponse response;
  bool last = false;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    dirty_ = false;
    if (writing_ || finished_ || !TakeNext(&response, &last, &status)) return;
    if (!status.ok() || last) {
      finished_ = true;
    }
    if (status.ok()) {
      writing_ = true;
      write_start_us_ = NowUs();
    } else {
      code_ = static_cast<grpc::StatusCode>(status.code());
    }
  }
  if (!status.ok()) {
    Finish(ToGrpcStatus(status));
    return;
  }
  buffer_.Clear();  // Serialize takes an empty buffer only
  bool own_buffer = false;
  const grpc::Status encoded = grpc::SerializationTraits<weft::v1::GenerateResponse>::Serialize(
      response, &buffer_, &own_buffer);
  WEFT_CHECK_MSG(encoded.ok(), encoded.error_message());
  if (last) {
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    StartWrite(&buffer_);
  }
}

void GenerateReactor::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    finished_ = true;
    code_ = static_cast<grpc::StatusCode>(status.code());
  }
  Finish(ToGrpcStatus(status));
}

void GenerateReactor::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
  if (!ok) CancelRequest(CancelReason::kClientGone);
  Pump();
}

// -- Ends ----------------------------------------------------------------------------------------

void GenerateReactor::OnCancel() {
  const bool late = deadline_us_ != 0 && NowUs() >= deadline_us_;
  CancelRequest(late ? CancelReason::kDeadline : CancelReason::kClientGone);
}

void GenerateReactor::CancelRequest(CancelReason reason) {
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

void GenerateReactor::CheckSlow(int64_t now_us, int64_t timeout_us) {
  {
    absl::MutexLock lock(&mutex_);
    if (!writing_ || now_us - write_start_us_ < timeout_us) return;
  }
  CancelRequest(CancelReason::kSlowReader);
  absl::MutexLock lock(&mutex_);
  if (!done_) context_->TryCancel();  // the pending write fails
}

void GenerateReactor::OnDone() {
  calls_->Remove(this);
  AccessRecord record;
  grpc::StatusCode code;
  {
    absl::MutexLock lock(&mutex_);
    code = code_;
    done_ = true;
    if (answer_ != nullptr) DescribeAnswer(*answer_, &record);
    if (cancelled_) record.cause = CancelReasonName(cancel_reason_);
    record.first_token_us = first_token_us_;
  }
  record.total_us = NowUs() - start_us_;
  record.door = "grpc";
  record.route = "Generate";
  record.client = client_;
  record.traceparent = traceparent_;
  record.status = std::string(GrpcCodeName(code));
  LogAccess(record);
  doors_->probe().GrpcHandled("Generate", GrpcCodeName(code), record.total_us);
  self_.reset();  // may delete this
}

}  // namespace weft::router

#include "router/doors/grpc/batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/doors/grpc/caller.h"
#include "router/doors/grpc/errors.h"
#include "router/doors/grpc/messages.h"
#include "router/doors/grpc/request.h"
#include "router/errors.h"

namespace weft::router {
namespace {

int64_t NowUs() { return MonotonicClock().NowUs(); }

void FillError(const absl::Status& status, weft::v1::GenerateError* error) {
  const grpc::Status wire = ToGrpcStatus(status);
  error->set_code(wire.error_code());
  error->set_message(wire.error_message());
  error->set_status_details(wire.error_details());
}

}  // namespace

// -- Start ---------------------------------------------------------------------------------------

absl::Status BatchCall::ReadBatch() {
  WEFT_RETURN_IF_ERROR(
      TakeMessage(message(), door_.message_bytes_max, &batch_,
                  "is not a GenerateBatchRequest: malformed, or text in it is not UTF-8"));
  if (!batch_.request_id().empty() && !IsRequestId(batch_.request_id())) {
    return FieldError("request_id", "must have 1 to 128 characters of [A-Za-z0-9._-]");
  }
  const auto requests = static_cast<size_t>(batch_.requests_size());
  if (requests == 0) return FieldError("requests", "must not be empty");
  if (requests > kPromptsMax) {
    return FieldError("requests",
                      absl::StrCat("must have at most ", kPromptsMax, " entries, not ", requests));
  }
  uint64_t answers = 0;
  for (const weft::v1::GenerateRequest& one : batch_.requests()) {
    answers += std::max(1u, one.sampling().n());
  }
  if (answers > kAnswersMax) {
    return FieldError("requests", absl::StrCat("ask for ", answers, " answers; a call has at most ",
                                               kAnswersMax));
  }
  return absl::OkStatus();
}

std::vector<absl::StatusOr<GenerateInput>> BatchCall::ReadRequests() {
  std::vector<absl::StatusOr<GenerateInput>> inputs;
  std::vector<std::string> all_ignored;
  for (int i = 0; i < batch_.requests_size(); ++i) {
    weft::v1::GenerateRequest* const request = batch_.mutable_requests(i);
    std::vector<std::string> ignored;
    inputs.push_back(ReadGenerate(*door_.doors, request, &ignored));
    FreePrompt(request);  // the input has it
    if (!inputs.back().ok()) {
      door_.doors->probe().Failed(FailureReason::kValidation);
      continue;
    }
    for (const std::string& name : ignored) {
      if (all_ignored.size() < kIgnoredNamesMax) {
        all_ignored.push_back(absl::StrCat("requests[", i, "].", name));
      }
    }
  }
  if (!all_ignored.empty()) {
    context_->AddInitialMetadata("x-weft-ignored-fields", absl::StrJoin(all_ignored, ", "));
  }
  return inputs;
}

void BatchCall::OnMessage() {
  absl::StatusOr<Admission::Permit> permit = door_.doors->Enter(tenant(), message()->Length());
  if (!permit.ok()) return Refuse(permit.status());
  const absl::Status good = ReadBatch();
  if (!good.ok()) {
    door_.doors->probe().Failed(FailureReason::kValidation);
    return End(good);
  }
  std::vector<absl::StatusOr<GenerateInput>> inputs = ReadRequests();
  Submit(std::move(inputs), *std::move(permit));
}

absl::StatusOr<std::vector<std::shared_ptr<Answer>>> BatchCall::SubmitOne(
    GenerateInput input, uint32_t choices, std::optional<Admission::Permit>* permit) {
  std::vector<Admission::Permit> permits;
  if (permit->has_value()) {
    permits.push_back(*std::move(*permit));
    permit->reset();
  }
  while (permits.size() < choices) {
    WEFT_ASSIGN_OR_RETURN(Admission::Permit one, door_.doors->Enter(tenant(), 0));
    permits.push_back(std::move(one));
  }
  return door_.doors->entrance().SubmitChoices(
      std::move(input), std::move(permits),
      std::static_pointer_cast<BatchCall>(shared_from_this()));
}

void BatchCall::Submit(std::vector<absl::StatusOr<GenerateInput>> inputs,
                       Admission::Permit permit) {
  const std::string name = batch_.request_id().empty() ? NewRequestId() : batch_.request_id();
  context_->AddInitialMetadata("x-request-id", name);
  const int64_t deadline_us = DeadlineUsOf(*context_);
  const bool has_deadline = deadline_us != std::numeric_limits<int64_t>::max();
  {
    absl::MutexLock lock(&mutex_);
    deadline_us_ = has_deadline ? deadline_us : 0;
  }
  std::optional<Admission::Permit> first = std::move(permit);
  std::vector<One> ones;
  std::vector<std::shared_ptr<Answer>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const weft::v1::GenerateRequest& request = batch_.requests(static_cast<int>(i));
    One& one = ones.emplace_back(&request);
    absl::StatusOr<GenerateInput>& input = inputs[i];
    one.refused = input.status();
    if (!input.ok()) continue;
    if (input->correlation_id.empty()) input->correlation_id = name;
    input->traceparent = traceparent();
    if (has_deadline) input->deadline_us = deadline_us;
    auto answers = SubmitOne(*std::move(input), std::max(1u, request.sampling().n()), &first);
    one.refused = answers.ok() ? absl::OkStatus() : WithGrpcField(answers.status(), request);
    if (!answers.ok()) continue;
    all.insert(all.end(), answers->begin(), answers->end());
    one.answers.emplace(*std::move(answers));
  }
  first.reset();
  std::optional<Answers> unwanted;
  CancelReason reason = CancelReason::kClientGone;
  {
    absl::MutexLock lock(&mutex_);
    left_ = ones.size();
    ones_ = std::move(ones);
    if (!all.empty()) all_.emplace(std::move(all));
    if (cancelled_) unwanted = all_;
    reason = cancel_reason_;
  }
  if (unwanted.has_value()) unwanted->Cancel(reason);
  Pump();  // what was written so far found no answers here
}

// -- Events --------------------------------------------------------------------------------------

Waker* BatchCall::OnNews() {
  absl::MutexLock lock(&mutex_);
  if (!dirty_) {
    dirty_ = true;
    door_.calls->MarkDirty(shared_from_this());
  }
  return door_.calls;
}

bool BatchCall::TakeNext(weft::v1::GenerateBatchResponse* response,
                         std::optional<Answers>* unwanted) {
  for (size_t i = 0; i < ones_.size(); ++i) {
    const size_t at = (turn_ + i) % ones_.size();
    One& one = ones_[at];
    if (one.ended) continue;
    absl::Status status = one.refused;
    bool last = false;
    weft::v1::GenerateResponse event;
    if (status.ok() && !one.events.TakeNext(&*one.answers, cancelled_, &event, &last, &status)) {
      continue;
    }
    response->set_request_index(static_cast<uint32_t>(at));
    if (one.events.begun() && first_token_us_ == 0) first_token_us_ = NowUs() - start_us_;
    if (status.ok()) {
      *response->mutable_response() = std::move(event);
    } else {
      FillError(status, response->mutable_error());
      // One choice that fails fails its request; nobody reads the others any more.
      if (one.answers.has_value()) *unwanted = one.answers;
    }
    if (last || !status.ok()) {
      one.ended = true;
      --left_;
    }
    // Each has its turn, so that none waits for another one's long answer.
    turn_ = at + 1;
    return true;
  }
  return false;
}

void BatchCall::Pump() {
  weft::v1::GenerateBatchResponse response;
  bool last = false;
  bool cancelled = false;
  CancelReason reason = CancelReason::kClientGone;
  std::optional<Answers> unwanted;
  {
    absl::MutexLock lock(&mutex_);
    dirty_ = false;
    if (write_start_us_ != 0 || ended_ || !TakeNext(&response, &unwanted)) return;
    // To a client that has left nothing is written: the call ends when all requests have.
    while (cancelled_ && left_ > 0) {
      response.Clear();
      if (!TakeNext(&response, &unwanted)) return;
    }
    cancelled = cancelled_;
    reason = cancel_reason_;
    last = left_ == 0;
    write_start_us_ = NowUs();
    if (last) {
      ended_ = true;
      code_ = static_cast<grpc::StatusCode>(cancelled ? CancelStatus(reason).code()
                                                      : absl::StatusCode::kOk);
    }
  }
  if (unwanted.has_value()) unwanted->Cancel(CancelReason::kClientGone);
  if (cancelled) return Finish(ToGrpcStatus(CancelStatus(reason)));
  EncodeMessage(response, &buffer_);
  if (last) {
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    StartWrite(&buffer_);
  }
}

void BatchCall::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    write_start_us_ = 0;
  }
  if (!ok) CancelRequests(CancelReason::kClientGone);
  Pump();
}

// -- Ends ----------------------------------------------------------------------------------------

void BatchCall::OnCancel() {
  bool late = false;
  {
    // It may come while Submit runs.
    absl::MutexLock lock(&mutex_);
    late = deadline_us_ != 0 && NowUs() >= deadline_us_;
  }
  CancelRequests(late ? CancelReason::kDeadline : CancelReason::kClientGone);
}

void BatchCall::CancelRequests(CancelReason reason) {
  std::optional<Answers> all;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    cancel_reason_ = reason;
    all = all_;
  }
  // The ends follow and finish the call.
  if (all.has_value()) all->Cancel(reason);
}

void BatchCall::Describe(AccessRecord* record) {
  absl::MutexLock lock(&mutex_);
  if (all_.has_value()) all_->Describe(record);
  if (cancelled_) record->cause = CancelReasonName(cancel_reason_);
  record->first_token_us = first_token_us_;
}

}  // namespace weft::router

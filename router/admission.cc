#include "router/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/context_length.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// Weight of the newest interval between departures.
constexpr double kDepartureWeight = 0.1;
constexpr absl::Duration kRetryAfterMin = absl::Seconds(1);
constexpr absl::Duration kRetryAfterMax = absl::Seconds(60);

}  // namespace

// -- Permit --------------------------------------------------------------------------------------

Admission::Permit& Admission::Permit::operator=(Permit&& other) noexcept {
  if (this != &other) {
    Release();
    admission_ = std::exchange(other.admission_, nullptr);
    tenant_ = std::move(other.tenant_);
    tenant_permit_ = std::move(other.tenant_permit_);
    queued_tokens_ = std::exchange(other.queued_tokens_, 0);
    text_bytes_ = std::exchange(other.text_bytes_, 0);
    answer_bytes_.store(other.answer_bytes_.exchange(0));
    stage_ = std::exchange(other.stage_, Stage::kQueued);
  }
  return *this;
}

absl::Status Admission::Permit::AddTokens(uint32_t prompt_tokens) {
  WEFT_CHECK(admission_ != nullptr && stage_ == Stage::kQueued);
  if (absl::Status status = tenant_permit_.ChargePrompt(prompt_tokens); !status.ok()) return status;
  absl::MutexLock lock(&admission_->mutex_);
  const uint64_t waiting_tokens = admission_->waiting_tokens_;
  if (waiting_tokens > 0 &&
      waiting_tokens + prompt_tokens > admission_->limits_.queue.queue_tokens_max) {
    tenant_permit_.RefundPrompt();
    return OverloadedError("QUEUE_TOKENS_FULL",
                           absl::StrCat("the queue holds ", waiting_tokens, " prompt tokens of ",
                                        admission_->limits_.queue.queue_tokens_max),
                           admission_->RetryAfterLocked());
  }
  admission_->waiting_tokens_ += prompt_tokens;
  queued_tokens_ += prompt_tokens;
  return absl::OkStatus();
}

absl::Status Admission::Permit::AddBytes(size_t bytes) {
  WEFT_CHECK(admission_ != nullptr);
  absl::MutexLock lock(&admission_->mutex_);
  // What it holds itself does not count against it.
  admission_->bytes_.fetch_sub(text_bytes_, std::memory_order_relaxed);
  const absl::Status status = admission_->TakeBytesLocked(text_bytes_ + bytes);
  if (status.ok()) {
    text_bytes_ += bytes;
  } else {
    admission_->bytes_.fetch_add(text_bytes_, std::memory_order_relaxed);
  }
  return status;
}

void Admission::Permit::ReleaseTextBytes() {
  if (admission_ == nullptr) return;
  admission_->bytes_.fetch_sub(std::exchange(text_bytes_, 0), std::memory_order_relaxed);
}

void Admission::Permit::MarkRunning() {
  if (admission_ == nullptr || stage_ != Stage::kQueued) return;
  absl::MutexLock lock(&admission_->mutex_);
  --admission_->waiting_;
  admission_->waiting_tokens_ -= std::exchange(queued_tokens_, 0);
  ++admission_->running_;
  stage_ = Stage::kRunning;
  tenant_permit_.CountPrompt();
}

void Admission::Permit::MarkWritten() {
  if (admission_ == nullptr || stage_ == Stage::kWritten) return;
  absl::MutexLock lock(&admission_->mutex_);
  if (stage_ == Stage::kQueued) {
    --admission_->waiting_;
    admission_->waiting_tokens_ -= std::exchange(queued_tokens_, 0);
  } else {
    admission_->LeaveRunningLocked();
  }
  ++admission_->written_;
  stage_ = Stage::kWritten;
}

void Admission::Permit::Release() {
  if (admission_ == nullptr) return;
  MarkWritten();
  ReleaseTextBytes();
  admission_->bytes_.fetch_sub(answer_bytes_.exchange(0), std::memory_order_relaxed);
  {
    absl::MutexLock lock(&admission_->mutex_);
    --admission_->written_;
  }
  admission_ = nullptr;
  stage_ = Stage::kQueued;
  tenant_permit_.Release();
  tenant_.reset();
}

void Admission::Permit::ChargeGenerated(uint32_t tokens) { tenant_permit_.Charge(tokens); }

void Admission::Permit::ChargeBytes(size_t bytes) {
  if (admission_ == nullptr) return;
  answer_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  admission_->bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

void Admission::Permit::GiveBackBytes(size_t bytes) {
  if (admission_ == nullptr) return;
  answer_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  admission_->bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

// -- Admission -----------------------------------------------------------------------------------

Admission::Admission(const AdmissionLimits& limits, const Clock* clock)
    : clock_(clock), limits_(limits) {}

absl::StatusOr<Admission::Permit> Admission::Enter(const TenantRef& tenant, size_t bytes) {
  return EnterAs(tenant, bytes, /*closed_counts=*/true);
}

absl::StatusOr<Admission::Permit> Admission::EnterText(const TenantRef& tenant, size_t bytes) {
  return EnterAs(tenant, bytes, /*closed_counts=*/false);
}

absl::StatusOr<Admission::Permit> Admission::EnterAs(const TenantRef& tenant, size_t bytes,
                                                     bool closed_counts) {
  // The tenant's place first: it goes back by itself when there is none here.
  absl::StatusOr<TenantMeter::Permit> tenant_permit = tenant->meter->Enter();
  if (!tenant_permit.ok()) return tenant_permit.status();
  {
    absl::MutexLock lock(&mutex_);
    if (closed_counts && !closed_.ok()) return closed_;
    if (absl::Status status = TakePlaceLocked(bytes); !status.ok()) return status;
  }
  tenant->meter->use().AddRequest();
  return Permit(this, bytes, tenant, *std::move(tenant_permit));
}

absl::Status Admission::TakePlaceLocked(size_t bytes) {
  // A request passes through the queue even when it will run at once: free running places count
  // as places of the queue. For a moment more than running_max run here, until text out has written
  // the ends of those whose places in the batch are taken again.
  const uint64_t places = uint64_t{limits_.queue.queue_requests_max} + limits_.running_max;
  if (uint64_t{waiting_} + written_ + running_ >= places) {
    return OverloadedError("QUEUE_FULL",
                           absl::StrCat(running_, " requests run and ", waiting_, " of ",
                                        limits_.queue.queue_requests_max, " wait"),
                           RetryAfterLocked());
  }
  if (absl::Status status = TakeBytesLocked(bytes); !status.ok()) return status;
  ++waiting_;
  return absl::OkStatus();
}

absl::Status Admission::TakeBytesLocked(size_t bytes) {
  const size_t held = bytes_.load(std::memory_order_relaxed);
  if (held > 0 && held + bytes > limits_.queue.text_bytes_max) {
    return OverloadedError(
        "TEXT_BYTES_FULL",
        absl::StrCat("texts under way and unread answers hold ", held, " bytes of ",
                     limits_.queue.text_bytes_max, "; this request needs ", bytes, " more"),
        RetryAfterLocked());
  }
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

void Admission::SetRequestTokensMax(uint32_t request_tokens_max) {
  absl::MutexLock lock(&mutex_);
  request_tokens_max_ = request_tokens_max;
}

uint32_t Admission::request_tokens_max() const {
  absl::MutexLock lock(&mutex_);
  return request_tokens_max_;
}

absl::StatusOr<uint32_t> Admission::OutputTokens(uint32_t prompt_tokens,
                                                 std::optional<uint32_t> max_tokens) const {
  const uint32_t longest = request_tokens_max();
  if (prompt_tokens >= longest) {
    return ContextLengthError(
        "prompt", absl::StrCat("the prompt is too long: it has ", prompt_tokens, " tokens"),
        longest);
  }
  const uint32_t room = longest - prompt_tokens;
  if (!max_tokens.has_value()) return room;
  if (*max_tokens > room) {
    return ContextLengthError("max_tokens",
                              absl::StrCat("is ", *max_tokens, "; after a prompt of ",
                                           prompt_tokens, " tokens at most ", room, " are left"),
                              longest);
  }
  return *max_tokens;
}

void Admission::SetRunningMax(uint32_t running_max) {
  absl::MutexLock lock(&mutex_);
  limits_.running_max = running_max;
}

void Admission::SetQueueLimits(const QueueLimits& limits) {
  absl::MutexLock lock(&mutex_);
  limits_.queue = limits;
}

uint64_t Admission::requests_max() const {
  absl::MutexLock lock(&mutex_);
  return uint64_t{limits_.running_max} + limits_.queue.queue_requests_max;
}

void Admission::Close(absl::Status why) {
  WEFT_CHECK(!why.ok());
  absl::MutexLock lock(&mutex_);
  closed_ = std::move(why);
}

void Admission::Open() {
  absl::MutexLock lock(&mutex_);
  closed_ = absl::OkStatus();
}

uint32_t Admission::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_;
}

uint32_t Admission::running() const {
  absl::MutexLock lock(&mutex_);
  return running_;
}

uint32_t Admission::written() const {
  absl::MutexLock lock(&mutex_);
  return written_;
}

bool Admission::WaitIdle(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(this, &Admission::IdleLocked), timeout);
}

void Admission::LeaveRunningLocked() {
  --running_;
  const int64_t now_us = clock_->NowUs();
  if (last_departure_us_ > 0) {
    const double gap_us = static_cast<double>(now_us - last_departure_us_);
    departure_us_ =
        departure_us_ == 0 ? gap_us : departure_us_ + kDepartureWeight * (gap_us - departure_us_);
  }
  last_departure_us_ = now_us;
}

// The time in which, at the rate at which requests left lately, those that wait now will have
// begun to run.
absl::Duration Admission::RetryAfterLocked() const {
  const absl::Duration drain = absl::Microseconds(departure_us_ * waiting_);
  return std::clamp(drain, kRetryAfterMin, kRetryAfterMax);
}

}  // namespace weft::router

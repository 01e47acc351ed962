#include "router/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// Weight of the newest interval between departures.
constexpr double kDepartureWeight = 0.1;
constexpr absl::Duration kRetryAfterMin = absl::Seconds(1);
constexpr absl::Duration kRetryAfterMax = absl::Seconds(60);

}  // namespace

Admission::Permit& Admission::Permit::operator=(Permit&& other) noexcept {
  if (this != &other) {
    Release();
    admission_ = std::exchange(other.admission_, nullptr);
    queued_tokens_ = std::exchange(other.queued_tokens_, 0);
    running_ = std::exchange(other.running_, false);
  }
  return *this;
}

absl::Status Admission::Permit::AddTokens(uint32_t prompt_tokens) {
  WEFT_CHECK(admission_ != nullptr && !running_);
  absl::MutexLock lock(&admission_->mutex_);
  const uint64_t waiting_tokens = admission_->waiting_tokens_;
  if (waiting_tokens > 0 && waiting_tokens + prompt_tokens > admission_->limits_.queue_tokens_max) {
    return OverloadedError("QUEUE_TOKENS_FULL",
                           absl::StrCat("the queue holds ", waiting_tokens, " prompt tokens of ",
                                        admission_->limits_.queue_tokens_max),
                           admission_->RetryAfterLocked());
  }
  admission_->waiting_tokens_ += prompt_tokens;
  queued_tokens_ += prompt_tokens;
  return absl::OkStatus();
}

void Admission::Permit::MarkRunning() {
  if (admission_ == nullptr || running_) return;
  absl::MutexLock lock(&admission_->mutex_);
  --admission_->waiting_;
  admission_->waiting_tokens_ -= queued_tokens_;
  ++admission_->running_;
  queued_tokens_ = 0;
  running_ = true;
}

void Admission::Permit::Release() {
  if (admission_ == nullptr) return;
  admission_->Leave(running_, queued_tokens_);
  admission_ = nullptr;
  queued_tokens_ = 0;
  running_ = false;
}

Admission::Admission(const AdmissionLimits& limits, const Clock* clock)
    : clock_(clock), limits_(limits) {}

absl::StatusOr<Admission::Permit> Admission::Enter() {
  absl::MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  // A request passes through the queue even when it will run at once: free running places count
  // as places of the queue.
  const uint32_t free_places = limits_.running_max - std::min(running_, limits_.running_max);
  if (waiting_ >= uint64_t{limits_.queue_requests_max} + free_places) {
    return OverloadedError("QUEUE_FULL",
                           absl::StrCat(running_, " requests run and ", waiting_, " of ",
                                        limits_.queue_requests_max, " wait"),
                           RetryAfterLocked());
  }
  ++waiting_;
  return Permit(this);
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
    return FieldError("prompt", absl::StrCat("has ", prompt_tokens,
                                             " tokens; prompt and output "
                                             "together may have ",
                                             longest));
  }
  const uint32_t room = longest - prompt_tokens;
  if (!max_tokens.has_value()) return room;
  if (*max_tokens > room) {
    return FieldError("max_tokens",
                      absl::StrCat("is ", *max_tokens, "; after a prompt of ", prompt_tokens,
                                   " tokens at most ", room, " are left of ", longest));
  }
  return *max_tokens;
}

void Admission::SetRunningMax(uint32_t running_max) {
  absl::MutexLock lock(&mutex_);
  limits_.running_max = running_max;
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

void Admission::Leave(bool running, uint64_t queued_tokens) {
  absl::MutexLock lock(&mutex_);
  if (!running) {
    --waiting_;
    waiting_tokens_ -= queued_tokens;
    return;
  }
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

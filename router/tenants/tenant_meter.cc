#include "router/tenants/tenant_meter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// A token in the bucket's unit: a rate of r tokens a minute then adds r a microsecond.
constexpr int64_t kUnit = 60'000'000;
static_assert(kTenantTokensPerMinuteMax < INT64_MAX / kUnit / 4);
// Nobody owes more; it only keeps the sum from overflowing.
constexpr int64_t kDebtMax = INT64_MAX / 4;
// When places free up cannot be foreseen: requests differ too much.
constexpr absl::Duration kRequestsRetryAfter = absl::Seconds(1);
// Generated tokens of a request that are not counted as used yet.
constexpr uint32_t kGeneratedKept = 64;

int64_t Units(uint64_t tokens) {
  return static_cast<int64_t>(std::min<uint64_t>(tokens, kDebtMax / kUnit)) * kUnit;
}

}  // namespace

int64_t TokenBucket::capacity() const { return tokens_per_minute_ * kUnit; }

void TokenBucket::SetRate(absl::optional<uint64_t> tokens_per_minute, int64_t now_us) {
  const bool first = tokens_per_minute_ == 0;
  Fill(now_us);
  tokens_per_minute_ = static_cast<int64_t>(tokens_per_minute.value_or(0));
  level_ = first ? capacity() : std::min(level_, capacity());
  filled_us_ = now_us;
}

void TokenBucket::Fill(int64_t now_us) {
  if (tokens_per_minute_ == 0 || now_us <= filled_us_) return;
  const int64_t missing = capacity() - level_;
  const int64_t elapsed_us = now_us - filled_us_;
  // The division keeps a long time × a high rate from overflowing.
  level_ = elapsed_us >= missing / tokens_per_minute_ + 1
               ? capacity()
               : level_ + elapsed_us * tokens_per_minute_;
  level_ = std::min(level_, capacity());
  filled_us_ = now_us;
}

int64_t TokenBucket::WaitUs(uint64_t tokens, int64_t now_us) {
  if (tokens_per_minute_ == 0) return 0;
  Fill(now_us);
  const int64_t needed = std::min(Units(std::max<uint64_t>(tokens, 1)), capacity());
  if (level_ >= needed) return 0;
  return (needed - level_ + tokens_per_minute_ - 1) / tokens_per_minute_;
}

void TokenBucket::Charge(uint64_t tokens, int64_t now_us) {
  if (tokens_per_minute_ == 0) return;
  Fill(now_us);
  level_ = std::max(level_ - Units(tokens), -kDebtMax);
}

void TokenBucket::GiveBack(uint64_t tokens, int64_t now_us) {
  if (tokens_per_minute_ == 0) return;
  Fill(now_us);
  level_ = std::min(level_ + Units(tokens), capacity());
}

absl::Status TenantMeter::Permit::ChargePrompt(uint32_t prompt_tokens) {
  if (meter_ == nullptr) return absl::OkStatus();
  TenantMeter& meter = *meter_;
  const int64_t now_us = meter.clock_->NowUs();
  int64_t wait_us = 0;
  uint64_t rate = 0;
  {
    absl::MutexLock lock(&meter.mutex_);
    wait_us = meter.bucket_.WaitUs(prompt_tokens, now_us);
    if (wait_us == 0) meter.bucket_.Charge(prompt_tokens, now_us);
    rate = meter.limits_.tokens_per_minute.value_or(0);
  }
  if (wait_us > 0) return meter.TokensError(rate, wait_us);
  prompt_tokens_ += prompt_tokens;
  return absl::OkStatus();
}

void TenantMeter::Permit::Charge(uint32_t tokens) {
  if (meter_ == nullptr) return;
  generated_ += tokens;
  if (generated_ >= kGeneratedKept) CountGenerated();
  if (!meter_->has_rate_.load(std::memory_order_relaxed)) return;
  const int64_t now_us = meter_->clock_->NowUs();
  absl::MutexLock lock(&meter_->mutex_);
  meter_->bucket_.Charge(tokens, now_us);
}

void TenantMeter::Permit::CountPrompt() {
  if (meter_ != nullptr) meter_->use_->AddPrompt(prompt_tokens_);
}

void TenantMeter::Permit::CountGenerated() {
  meter_->use_->AddGenerated(std::exchange(generated_, 0));
}

void TenantMeter::Permit::RefundPrompt() {
  if (meter_ == nullptr) return;
  const int64_t now_us = meter_->clock_->NowUs();
  absl::MutexLock lock(&meter_->mutex_);
  meter_->bucket_.GiveBack(std::exchange(prompt_tokens_, 0), now_us);
}

void TenantMeter::Permit::Release() {
  if (meter_ == nullptr) return;
  CountGenerated();
  {
    absl::MutexLock lock(&meter_->mutex_);
    WEFT_CHECK_GT(meter_->requests_, 0u);
    --meter_->requests_;
  }
  meter_.reset();
}

TenantMeter::TenantMeter(std::string name, const TenantLimits& limits, const Clock* clock,
                         std::shared_ptr<TenantUse> use)
    : name_(std::move(name)),
      clock_(clock),
      use_(use != nullptr ? std::move(use) : std::make_shared<TenantUse>()),
      has_rate_(limits.tokens_per_minute.has_value()),
      limits_(limits) {
  absl::MutexLock lock(&mutex_);
  bucket_.SetRate(limits.tokens_per_minute, clock_->NowUs());
}

absl::StatusOr<TenantMeter::Permit> TenantMeter::Enter() {
  const int64_t now_us = clock_->NowUs();
  int64_t wait_us = 0;
  uint64_t rate = 0;
  uint32_t most = 0;
  {
    absl::MutexLock lock(&mutex_);
    wait_us = bucket_.WaitUs(1, now_us);
    rate = limits_.tokens_per_minute.value_or(0);
    most = limits_.requests_max.value_or(UINT32_MAX);
    if (requests_ < most && wait_us == 0) {
      ++requests_;
      return Permit(shared_from_this());
    }
  }
  // Messages are made outside the lock: a flood of refusals must not hold up those within limits.
  if (wait_us > 0) return TokensError(rate, wait_us);
  return OverloadedError("TENANT_REQUESTS",
                         absl::StrCat("tenant ", name_, " has ", most,
                                      " requests waiting or running, as many as it may; try again"),
                         kRequestsRetryAfter);
}

void TenantMeter::SetLimits(const TenantLimits& limits) {
  const int64_t now_us = clock_->NowUs();
  absl::MutexLock lock(&mutex_);
  if (limits.tokens_per_minute != limits_.tokens_per_minute) {
    bucket_.SetRate(limits.tokens_per_minute, now_us);
  }
  limits_ = limits;
  has_rate_.store(limits.tokens_per_minute.has_value(), std::memory_order_relaxed);
}

uint32_t TenantMeter::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

absl::Status TenantMeter::TokensError(uint64_t tokens_per_minute, int64_t wait_us) const {
  const absl::Duration wait = absl::Ceil(absl::Microseconds(wait_us), absl::Milliseconds(1));
  return OverloadedError(
      "TENANT_TOKENS",
      absl::StrCat("tenant ", name_, " has used its ", tokens_per_minute,
                   " tokens a minute; try again in ", absl::FormatDuration(wait)),
      wait);
}

}  // namespace weft::router

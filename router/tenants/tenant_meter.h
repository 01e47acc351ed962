// Counts what one tenant uses and says when it is too much: requests that wait or run at once, and
// tokens a minute. Shared by all requests of the tenant, whichever door they came through;
// thread-safe, one short lock, never blocks. It outlives reloads of the key file, so a new limit
// meets what is already running.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "router/tenants/tenant_limits.h"
#include "router/tenants/tenant_use.h"

namespace weft::router {

// Tokens a minute as a bucket that holds one minute's worth and fills evenly. Exact: it counts in
// tokens × microseconds. What has been asked for is charged also when the bucket is empty (a
// running request is not cut); the debt is paid before the next one is let in. Its owner locks.
class TokenBucket {
 public:
  // A new rate keeps what is owed; a first one begins with a full bucket.
  void SetRate(absl::optional<uint64_t> tokens_per_minute, int64_t now_us);
  // Time until the bucket holds `tokens`, or is full if it never holds so many; 0 = it does. At
  // least one token is asked for.
  int64_t WaitUs(uint64_t tokens, int64_t now_us);
  void Charge(uint64_t tokens, int64_t now_us);
  void GiveBack(uint64_t tokens, int64_t now_us);

 private:
  void Fill(int64_t now_us);
  int64_t capacity() const;

  // 0 = no limit.
  int64_t tokens_per_minute_ = 0;
  // One token is kUnit of it; below 0 is owed.
  int64_t level_ = 0;
  int64_t filled_us_ = 0;
};

class TenantMeter : public std::enable_shared_from_this<TenantMeter> {
 public:
  // A request's place among those of its tenant; gives it back when it goes away. Movable; an empty
  // one holds nothing and charges nobody. Used by one thread at a time.
  class Permit {
   public:
    Permit() = default;
    Permit(Permit&& other) noexcept = default;
    Permit& operator=(Permit&& other) noexcept {
      Release();
      meter_ = std::move(other.meter_);
      prompt_tokens_ = std::exchange(other.prompt_tokens_, 0);
      generated_ = std::exchange(other.generated_, 0);
      return *this;
    }
    ~Permit() { Release(); }

    // Charges the prompt, once its length is known. RESOURCE_EXHAUSTED with Retry-After, and
    // nothing charged, while the tenant's tokens do not reach for it; a prompt of more than a
    // minute's tokens needs a full bucket.
    absl::Status ChargePrompt(uint32_t prompt_tokens);
    // Charges generated tokens. Never refused.
    void Charge(uint32_t tokens);
    // The prompt begins to run: it counts as used. Once.
    void CountPrompt();
    // The prompt is not going to run (somebody else refused it): its charge is given back.
    void RefundPrompt();
    // Idempotent.
    void Release();

   private:
    friend class TenantMeter;
    explicit Permit(std::shared_ptr<TenantMeter> meter) : meter_(std::move(meter)) {}
    void CountGenerated();

    std::shared_ptr<TenantMeter> meter_;
    uint32_t prompt_tokens_ = 0;
    // Generated, and not yet counted as used: counts of one tenant's streams meet in one place, so
    // that each comes there seldom.
    uint32_t generated_ = 0;
  };

  // `name` of the tenant is for messages. `clock` must outlive this. What is used counts in `use`,
  // or, without one, in one of its own. Held by shared_ptr.
  TenantMeter(std::string name, const TenantLimits& limits, const Clock* clock,
              std::shared_ptr<TenantUse> use = nullptr);

  TenantMeter(const TenantMeter&) = delete;
  TenantMeter& operator=(const TenantMeter&) = delete;

  // Lets one request in. RESOURCE_EXHAUSTED with Retry-After (reason TENANT_REQUESTS or
  // TENANT_TOKENS) when requests_max are here already, or while tokens are owed.
  absl::StatusOr<Permit> Enter();

  // Takes new limits over; what is running stays.
  void SetLimits(const TenantLimits& limits);

  // Requests that hold a permit.
  uint32_t requests() const;
  // What was used, of which running streams owe their last few tokens.
  TenantUse& use() const { return *use_; }

 private:
  absl::Status TokensError(uint64_t tokens_per_minute, int64_t wait_us) const;

  const std::string name_;
  const Clock* const clock_;
  // Never null.
  const std::shared_ptr<TenantUse> use_;
  // Whether limits_ names a rate; read without the mutex, so that a token of an unlimited tenant
  // costs nothing.
  std::atomic<bool> has_rate_;
  mutable absl::Mutex mutex_;
  TenantLimits limits_ ABSL_GUARDED_BY(mutex_);
  TokenBucket bucket_ ABSL_GUARDED_BY(mutex_);
  uint32_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::router

// Decides who comes in: limits in requests, in prompt tokens and in bytes, a queue limit apart from
// the running limit, and whether the server takes requests at all. A Permit is a request's right to
// be here, from before its first byte is looked at (invariant pay.first) to the last byte of its
// answer; it gives everything back when it goes away (invariant end.once). Owned by the router's
// core, thread-safe, never blocks, never sees text.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/limits.h"
#include "router/tenants/tenant.h"

namespace weft::router {

// May change while requests are here: those that are stay, and newcomers meet the new ones.
struct QueueLimits {
  // Requests that wait for their first step, or for the reader of their complete answer.
  uint32_t queue_requests_max = kQueueRequestsDefault;
  // Prompt tokens of those that wait.
  uint64_t queue_tokens_max = kQueueTokensDefault;
  // Memory for bodies and texts on their way in and for answers that nobody has read yet.
  size_t text_bytes_max = kTextBytesDefault;
};

struct AdmissionLimits {
  // Requests that hold KV at the same time. The scheduler keeps it; here it frees the queue.
  uint32_t running_max = kRunningDefault;
  QueueLimits queue;
};

class Admission {
 public:
  // Movable; an empty one holds nothing. One thread at a time, but for the two byte counts below,
  // which an answer's two ends keep.
  class Permit {
   public:
    Permit() = default;
    Permit(Permit&& other) noexcept { *this = std::move(other); }
    Permit& operator=(Permit&& other) noexcept;
    ~Permit() { Release(); }

    bool held() const { return admission_ != nullptr; }
    // On whose behalf; null for an empty permit.
    const TenantRef& tenant() const { return tenant_; }

    // Adds the prompt's tokens, once known, and charges the tenant. RESOURCE_EXHAUSTED with
    // Retry-After when the tenant's tokens do not reach, or when the queue holds too many already;
    // a prompt alone in the queue is never refused by it.
    absl::Status AddTokens(uint32_t prompt_tokens);
    // What the text on its way in will need on top of what Enter counted. RESOURCE_EXHAUSTED with
    // Retry-After when it does not fit beside the others; whoever is alone is never refused.
    absl::Status AddBytes(size_t bytes);
    // The text has become tokens, which AddTokens counts: its bytes are free.
    void ReleaseTextBytes();
    // The request left the queue: its first chunk is planned. Idempotent.
    void MarkRunning();
    // Its answer is written: it holds no place in the batch any more. Idempotent.
    void MarkWritten();
    // Charges the tenant for tokens of the answer. Never refused.
    void ChargeGenerated(uint32_t tokens);
    // Gives all back. Idempotent.
    void Release();

    // Unread bytes of the answer; may be called by the writing and the reading thread. Never
    // refused: what it bounds is who else comes in.
    void ChargeBytes(size_t bytes);
    void GiveBackBytes(size_t bytes);

   private:
    friend class Admission;
    enum class Stage : uint8_t { kQueued, kRunning, kWritten };
    Permit(Admission* admission, size_t bytes, TenantRef tenant, TenantMeter::Permit tenant_permit)
        : admission_(admission),
          tenant_(std::move(tenant)),
          tenant_permit_(std::move(tenant_permit)),
          text_bytes_(bytes) {}

    Admission* admission_ = nullptr;
    TenantRef tenant_;
    TenantMeter::Permit tenant_permit_;
    uint64_t queued_tokens_ = 0;
    size_t text_bytes_ = 0;
    std::atomic<size_t> answer_bytes_{0};
    Stage stage_ = Stage::kQueued;
  };

  // `clock` must outlive this.
  Admission(const AdmissionLimits& limits, const Clock* clock);

  // Lets one request of `tenant` in, into the queue, with a body of `bytes`. The closing error when
  // closed; RESOURCE_EXHAUSTED with Retry-After when the tenant has its share already, when queue
  // and running places are taken, or when the bytes are.
  absl::StatusOr<Permit> Enter(const TenantRef& tenant, size_t bytes);
  // The same for a call that only text in serves (tokenising): it needs no shards, so being closed
  // does not matter.
  absl::StatusOr<Permit> EnterText(const TenantRef& tenant, size_t bytes);

  // Longest request: min(context, KV pool), prompt and output together.
  void SetRequestTokensMax(uint32_t request_tokens_max);
  uint32_t request_tokens_max() const;
  // New tokens the request may make: its own limit, or what the longest request leaves. An error
  // names `prompt` when it leaves no room for one token and `max_tokens` when both together are
  // too long.
  absl::StatusOr<uint32_t> OutputTokens(uint32_t prompt_tokens,
                                        std::optional<uint32_t> max_tokens) const;

  // The running limit that the shards' memory allows, once known.
  void SetRunningMax(uint32_t running_max);
  void SetQueueLimits(const QueueLimits& limits);
  // Requests that may be here at the same time: those that run, and those that wait.
  uint64_t requests_max() const;
  // Refuses everybody with `why` (not OK) from now on.
  void Close(absl::Status why);
  void Open();
  // Waits until no permit is out, up to `timeout`. True when none is.
  bool WaitIdle(absl::Duration timeout) const;

  uint32_t waiting() const;
  uint32_t running() const;
  // Complete answers that have not been read to their end.
  uint32_t written() const;
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  bool IdleLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return waiting_ == 0 && running_ == 0 && written_ == 0;
  }
  void LeaveRunningLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration RetryAfterLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Permit> EnterAs(const TenantRef& tenant, size_t bytes, bool closed_counts);
  absl::Status TakePlaceLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeBytesLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  AdmissionLimits limits_ ABSL_GUARDED_BY(mutex_);
  uint32_t request_tokens_max_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  uint32_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t waiting_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t written_ ABSL_GUARDED_BY(mutex_) = 0;
  // Texts on their way in, and unread answers.
  std::atomic<size_t> bytes_{0};
  // Smoothed time between two departures, and the last one.
  double departure_us_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_departure_us_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::router

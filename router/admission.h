// Decides who comes in: limits in requests and in tokens, a queue limit apart from the running
// limit, and whether the server takes requests at all. A Permit is a request's right to be here; it
// gives everything back when it goes away (invariant end.once). Owned by the engine intake,
// thread-safe, never blocks, never sees text.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/limits.h"

namespace weft::router {

struct AdmissionLimits {
  // Requests that hold KV at the same time. The scheduler keeps it; here it frees the queue.
  uint32_t running_max = kRunningDefault;
  // Requests that wait for their first step.
  uint32_t queue_requests_max = kQueueRequestsDefault;
  // Their prompt tokens.
  uint64_t queue_tokens_max = kQueueTokensDefault;
};

class Admission {
 public:
  // Movable; an empty one holds nothing.
  class Permit {
   public:
    Permit() = default;
    Permit(Permit&& other) noexcept { *this = std::move(other); }
    Permit& operator=(Permit&& other) noexcept;
    ~Permit() { Release(); }

    // Adds the prompt's tokens, once known. RESOURCE_EXHAUSTED with Retry-After when the queue
    // holds too many already; a prompt alone in the queue is never refused.
    absl::Status AddTokens(uint32_t prompt_tokens);
    // The request left the queue: its first chunk is planned. Idempotent.
    void MarkRunning();
    // Gives all back. Idempotent.
    void Release();

   private:
    friend class Admission;
    explicit Permit(Admission* admission) : admission_(admission) {}

    Admission* admission_ = nullptr;
    uint64_t queued_tokens_ = 0;
    bool running_ = false;
  };

  // `clock` must outlive this.
  Admission(const AdmissionLimits& limits, const Clock* clock);

  // Lets one request in, into the queue. The closing error when closed; RESOURCE_EXHAUSTED with
  // Retry-After when queue and running places are taken.
  absl::StatusOr<Permit> Enter();

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
  // Refuses everybody with `why` (not OK) from now on.
  void Close(absl::Status why);
  void Open();

  uint32_t waiting() const;
  uint32_t running() const;

 private:
  void Leave(bool running, uint64_t queued_tokens);
  absl::Duration RetryAfterLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  AdmissionLimits limits_ ABSL_GUARDED_BY(mutex_);
  uint32_t request_tokens_max_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  uint32_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t waiting_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  // Smoothed time between two departures, and the last one.
  double departure_us_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_departure_us_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::router

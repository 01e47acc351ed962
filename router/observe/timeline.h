// What the router and its shards do within a few seconds, event by event, for `weft trace`. Off
// until somebody takes a timeline, and then one branch on an atomic is all that it costs; while one
// is taken each event is 64 bytes in a buffer of fixed size, and what does not fit is counted.
// Thread-safe. It reads no clock of its own and knows nothing of how an event is drawn
// (observe/timeline_json.h).

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"

namespace weft::router {

// 8 MiB of events: five seconds of eight ranks and a thousand steps a second.
inline constexpr size_t kTimelineEventsMax = 1u << 17;

enum class TimelineKind : uint8_t {
  // -- Of an engine loop. `id` is the step, where there is one
  kTurn,
  kPlan,
  kSend,    // call, tokens, rows
  kAnswer,  // rank 0's answer is used
  kFlush,   // tokens are handed to text out
  // -- Of a worker of text out, by `track`
  kTextOut,
  // -- A rank's reply, by `track`; `id` is the step. See TimelineReply
  kReply,
  // -- Points of a request's way, in order; `id` is the sequence. See TimelineEvent::Request
  kArrived,
  kPrefill,
  kFirstToken,
  kEnded,
};

// What a rank said of a step, and what its call took. Microseconds.
struct TimelineReply {
  uint32_t call = 0;  // ShardCall
  uint32_t queue_us = 0;
  uint32_t host_us = 0;
  uint32_t device_us = 0;
  uint32_t comm_us = 0;
  uint32_t epoch = 0;
  // By the shard's clock; 0 = not said.
  uint64_t answered_us = 0;
};

struct TimelineEvent {
  // Monotonic microseconds.
  int64_t begin_us = 0;
  int64_t end_us = 0;
  uint64_t id = 0;
  std::array<uint32_t, 8> values = {};
  TimelineKind kind = TimelineKind::kTurn;
  // Which group of shards.
  uint8_t group = 0;
  uint16_t track = 0;

  static TimelineEvent Slice(TimelineKind kind, uint32_t group, uint64_t id, int64_t begin_us,
                             int64_t end_us);
  static TimelineEvent Reply(uint32_t group, uint32_t rank, uint64_t step, int64_t begin_us,
                             int64_t end_us, const TimelineReply& reply);
  // A request's point at `at_us`; `before_us` is when the stretch that ends here began: with
  // kArrived at its door, kPrefill as its prompt was ready, kFirstToken in its first step, kEnded
  // with its first token. 0 = never. Of `name`, an ASCII word, the first 24 bytes count.
  static TimelineEvent Request(TimelineKind kind, uint32_t group, uint64_t sequence,
                               absl::string_view name, int64_t before_us, int64_t at_us);

  TimelineReply reply() const;
  absl::string_view name() const;
};

class Timeline {
 public:
  struct Taken {
    int64_t begin_us = 0;
    int64_t end_us = 0;
    std::vector<TimelineEvent> events;
    // Found no room.
    uint64_t dropped = 0;
  };

  // Somebody takes one: the events of what happens are worth making.
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // False when one is being taken already.
  bool Begin(int64_t now_us, size_t events_max = kTimelineEventsMax);
  // REQUIRES: Begin returned true.
  Taken End(int64_t now_us);
  // Nothing while none is taken.
  void Add(const TimelineEvent& event);

 private:
  std::atomic<bool> on_{false};
  absl::Mutex mutex_;
  bool taking_ ABSL_GUARDED_BY(mutex_) = false;
  size_t events_max_ ABSL_GUARDED_BY(mutex_) = 0;
  Taken taken_ ABSL_GUARDED_BY(mutex_);
};

// Adds what its scope took, where a timeline is taken when it begins.
class TimelineScope {
 public:
  TimelineScope(Timeline* timeline, const Clock* clock, TimelineKind kind, uint32_t group,
                uint64_t id = 0)
      : timeline_(timeline->on() ? timeline : nullptr), clock_(clock) {
    if (timeline_ != nullptr) event_ = TimelineEvent::Slice(kind, group, id, clock->NowUs(), 0);
  }
  ~TimelineScope() { End(); }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

  // Null while none is taken.
  TimelineEvent* event() { return timeline_ != nullptr ? &event_ : nullptr; }
  void End() {
    if (timeline_ == nullptr) return;
    event_.end_us = clock_->NowUs();
    timeline_->Add(event_);
    timeline_ = nullptr;
  }

 private:
  Timeline* timeline_;
  const Clock* const clock_;
  TimelineEvent event_;
};

}  // namespace weft::router

#include "router/observe/timeline.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace weft::router {
namespace {

// The first of them; those that follow hold the name.
constexpr size_t kNameAt = 2;
constexpr size_t kNameBytes = 24;

static_assert(sizeof(TimelineEvent) == 64);

}  // namespace

TimelineEvent TimelineEvent::Slice(TimelineKind kind, uint32_t group, uint64_t id, int64_t begin_us,
                                   int64_t end_us) {
  TimelineEvent event;
  event.begin_us = begin_us;
  event.end_us = end_us;
  event.id = id;
  event.kind = kind;
  event.group = static_cast<uint8_t>(group);
  return event;
}

TimelineEvent TimelineEvent::Reply(uint32_t group, uint32_t rank, uint64_t step, int64_t begin_us,
                                   int64_t end_us, const TimelineReply& reply) {
  TimelineEvent event = Slice(TimelineKind::kReply, group, step, begin_us, end_us);
  event.track = static_cast<uint16_t>(rank);
  event.values = {reply.call,
                  reply.queue_us,
                  reply.host_us,
                  reply.device_us,
                  reply.comm_us,
                  reply.epoch,
                  static_cast<uint32_t>(reply.answered_us),
                  static_cast<uint32_t>(reply.answered_us >> 32)};
  return event;
}

TimelineEvent TimelineEvent::Request(TimelineKind kind, uint32_t group, uint64_t sequence,
                                     absl::string_view name, int64_t before_us, int64_t at_us) {
  TimelineEvent event = Slice(kind, group, sequence, at_us, before_us);
  std::memcpy(&event.values[kNameAt], name.data(), std::min(name.size(), kNameBytes));
  return event;
}

TimelineReply TimelineEvent::reply() const {
  return {values[0],
          values[1],
          values[2],
          values[3],
          values[4],
          values[5],
          uint64_t{values[7]} << 32 | values[6]};
}

absl::string_view TimelineEvent::name() const {
  const char* const begin = reinterpret_cast<const char*>(&values[kNameAt]);
  return absl::string_view(begin, strnlen(begin, kNameBytes));
}

bool Timeline::Begin(int64_t now_us, size_t events_max) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(taking_, true)) return false;
  events_max_ = events_max;
  taken_ = Taken();
  taken_.begin_us = now_us;
  // At once: an event must not wait for the copy of a million others.
  taken_.events.reserve(events_max);
  on_.store(true, std::memory_order_relaxed);
  return true;
}

Timeline::Taken Timeline::End(int64_t now_us) {
  absl::MutexLock lock(&mutex_);
  WEFT_CHECK(taking_);
  on_.store(false, std::memory_order_relaxed);
  taking_ = false;
  taken_.end_us = now_us;
  return std::exchange(taken_, Taken());
}

void Timeline::Add(const TimelineEvent& event) {
  absl::MutexLock lock(&mutex_);
  if (!taking_) return;
  if (taken_.events.size() == events_max_) {
    ++taken_.dropped;
    return;
  }
  taken_.events.push_back(event);
}

}  // namespace weft::router

#include "router/observe/timeline_layout.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"

namespace weft::router {
namespace {

using Part = TimelineEntry::Part;

// What is known of a request: 0 = not, or it lies before the timeline.
struct RequestWay {
  uint32_t event = 0;
  int64_t arrival_us = 0;
  int64_t prepared_us = 0;
  int64_t planned_us = 0;
  int64_t first_token_us = 0;
  int64_t end_us = 0;
  std::vector<uint32_t> points;
};

class Layout {
 public:
  explicit Layout(const Timeline::Taken& taken) : taken_(taken) {}

  std::vector<TimelineEntry> Make() {
    for (uint32_t i = 0; i < taken_.events.size(); ++i) {
      const TimelineEvent& event = taken_.events[i];
      if (event.kind == TimelineKind::kReply) {
        ranks_[{event.group, event.track}].push_back(i);
      } else if (event.kind >= TimelineKind::kArrived) {
        AddPoint(i);
      } else {
        AddSlice(Part::kRouter, i, event.begin_us, event.end_us);
      }
    }
    for (auto& [rank, replies] : ranks_) AddReplies(&replies);
    for (const auto& [sequence, request] : requests_) AddRequest(request);
    std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
      const auto key = [](const TimelineEntry& entry) {
        return std::make_tuple(entry.at_us, !entry.slice(), -entry.length_us);
      };
      return key(a) < key(b);
    });
    return std::move(entries_);
  }

 private:
  int64_t Within(int64_t us) const {
    return std::clamp(us, taken_.begin_us, std::max(taken_.begin_us, taken_.end_us)) -
           taken_.begin_us;
  }

  void AddSlice(Part part, uint32_t event, int64_t begin_us, int64_t end_us) {
    const int64_t at_us = Within(begin_us);
    entries_.push_back({at_us, std::max<int64_t>(Within(end_us) - at_us, 0), event, part});
  }

  void AddStretch(Part begin, uint32_t event, int64_t begin_us, int64_t end_us) {
    const Part end = static_cast<Part>(static_cast<uint8_t>(begin) + 1);
    entries_.push_back({Within(begin_us), 0, event, begin});
    entries_.push_back({Within(end_us), 0, event, end});
  }

  void AddPoint(uint32_t index) {
    const TimelineEvent& event = taken_.events[index];
    RequestWay& way = requests_[event.id];
    if (way.points.empty()) way.event = index;
    way.points.push_back(index);
    switch (event.kind) {
      case TimelineKind::kArrived:
        way.arrival_us = event.end_us;
        break;
      case TimelineKind::kPrefill:
        // A sequence that was preempted or recovered is prefilled again.
        if (way.planned_us > 0 || way.first_token_us > 0) break;
        way.prepared_us = event.end_us;
        way.planned_us = event.begin_us;
        break;
      case TimelineKind::kFirstToken:
        way.planned_us = event.end_us;
        way.first_token_us = event.begin_us;
        break;
      default:
        if (way.first_token_us == 0) way.first_token_us = event.end_us;
        way.end_us = event.begin_us;
        break;
    }
  }

  void AddRequest(const RequestWay& way) {
    // Where a time is not known the request had passed it before the timeline, or comes to it
    // behind its end. Phases follow one another, whatever was measured: no time lies before the one
    // before it.
    const auto since = [](int64_t a, int64_t b) { return a > 0 ? a : b; };
    const bool seen = way.arrival_us > 0;
    const int64_t begin_us = since(way.arrival_us, taken_.begin_us);
    const int64_t end_us = std::max(since(way.end_us, taken_.end_us), begin_us);
    const int64_t decode_us = std::clamp(since(way.first_token_us, end_us), begin_us, end_us);
    const int64_t prefill_us = std::clamp(since(way.planned_us, decode_us), begin_us, decode_us);
    entries_.push_back({Within(begin_us), 0, way.event, Part::kRequestBegin});
    if (seen) {
      const int64_t ready_us = std::clamp(since(way.prepared_us, prefill_us), begin_us, prefill_us);
      AddStretch(Part::kTextBegin, way.event, begin_us, ready_us);
      AddStretch(Part::kQueueBegin, way.event, ready_us, prefill_us);
    }
    if (way.planned_us > 0) AddStretch(Part::kPrefillBegin, way.event, prefill_us, decode_us);
    if (way.first_token_us > 0) AddStretch(Part::kDecodeBegin, way.event, decode_us, end_us);
    // At the same time what was added first comes first: the whole ends behind its parts.
    entries_.push_back({Within(end_us), 0, way.event, Part::kRequestEnd});
    if (way.points.size() < 2) return;
    for (size_t i = 0; i < way.points.size(); ++i) {
      const Part part = i == 0                       ? Part::kFlowBegin
                        : i + 1 == way.points.size() ? Part::kFlowEnd
                                                     : Part::kFlowStep;
      const uint32_t event = way.points[i];
      entries_.push_back({Within(taken_.events[event].begin_us), 0, event, part});
    }
  }

  // By how much the clock of a rank is behind the router's, at least, by epoch.
  absl::btree_map<uint32_t, int64_t> Offsets(const std::vector<uint32_t>& replies) const {
    absl::btree_map<uint32_t, int64_t> offsets;
    for (const uint32_t index : replies) {
      const TimelineReply reply = taken_.events[index].reply();
      if (reply.answered_us == 0) continue;
      const int64_t offset_us =
          taken_.events[index].end_us - static_cast<int64_t>(reply.answered_us);
      const auto [it, added] = offsets.try_emplace(reply.epoch, offset_us);
      if (!added) it->second = std::min(it->second, offset_us);
    }
    return offsets;
  }

  void AddReplies(std::vector<uint32_t>* replies) {
    const auto order = [this](uint32_t index) {
      const TimelineEvent& event = taken_.events[index];
      return std::make_tuple(event.reply().epoch, event.id);
    };
    std::sort(replies->begin(), replies->end(),
              [&order](uint32_t a, uint32_t b) { return order(a) < order(b); });
    const absl::btree_map<uint32_t, int64_t> offsets = Offsets(*replies);
    int64_t host_end_us = 0;
    int64_t device_end_us = 0;
    for (const uint32_t index : *replies) {
      const TimelineEvent& event = taken_.events[index];
      const TimelineReply reply = event.reply();
      AddStretch(Part::kWireBegin, index, event.begin_us, event.end_us);
      const int64_t end_us = reply.answered_us == 0 ? event.end_us
                                                    : static_cast<int64_t>(reply.answered_us) +
                                                          offsets.at(reply.epoch);
      // Steps run one after another: what measures say of an overlap of microseconds is cut.
      const int64_t device_us = std::max(end_us - reply.device_us, device_end_us);
      device_end_us = std::max(end_us, device_us);
      const int64_t arrived_us = end_us - reply.device_us - reply.queue_us - reply.host_us;
      const int64_t host_us = std::max(arrived_us, host_end_us);
      host_end_us = std::max(arrived_us + reply.host_us, host_us);
      AddSlice(Part::kHost, index, host_us, host_end_us);
      AddSlice(Part::kDevice, index, device_us, device_end_us);
      if (reply.comm_us == 0) continue;
      AddSlice(Part::kComm, index, std::max(device_end_us - reply.comm_us, device_us),
               device_end_us);
    }
  }

  const Timeline::Taken& taken_;
  absl::btree_map<std::pair<uint8_t, uint16_t>, std::vector<uint32_t>> ranks_;
  absl::btree_map<uint64_t, RequestWay> requests_;
  std::vector<TimelineEntry> entries_;
};

}  // namespace

std::vector<TimelineEntry> LayOut(const Timeline::Taken& taken) { return Layout(taken).Make(); }

}  // namespace weft::router

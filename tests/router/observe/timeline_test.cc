// A timeline's bound, where its events are drawn, and that what is written is good JSON.

#include "router/observe/timeline.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "boost/json.hpp"
#include "router/observe/timeline_json.h"
#include "router/observe/timeline_layout.h"
#include "router/shards/call.h"

namespace weft::router {
namespace {

using Part = TimelineEntry::Part;

constexpr int64_t kBegin = 1'000'000;
// The clock of a shard on another host.
constexpr int64_t kShardClock = 77'000'000'000;

TimelineEvent ReplyOf(uint64_t step, int64_t sent_us, int64_t heard_us, int64_t answered_us,
                      uint32_t device_us) {
  TimelineReply reply;
  reply.call = static_cast<uint32_t>(ShardCall::kDecode);
  reply.host_us = 10;
  reply.queue_us = 5;
  reply.device_us = device_us;
  reply.comm_us = device_us / 2;
  reply.epoch = 3;
  reply.answered_us = static_cast<uint64_t>(answered_us);
  return TimelineEvent::Reply(0, 1, step, sent_us, heard_us, reply);
}

// Entries of one part: (from, to).
std::vector<std::pair<int64_t, int64_t>> Of(const std::vector<TimelineEntry>& entries, Part part) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const TimelineEntry& entry : entries) {
    if (entry.part == part) found.emplace_back(entry.at_us, entry.at_us + entry.length_us);
  }
  return found;
}

std::string Document(Timeline::Taken taken, size_t piece_bytes) {
  TimelineJson json(std::move(taken), 1'700'000'000'000'000);
  std::string text = TimelineJson::kHead;
  while (json.Write(piece_bytes, &text)) {
  }
  return text;
}

// What a server of two ranks does, drawn from a seed.
Timeline::Taken Busy(uint32_t seed) {
  std::mt19937 random(seed);
  const auto up_to = [&random](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(most + 1));
  };
  Timeline timeline;
  timeline.Begin(kBegin);
  int64_t now_us = kBegin + up_to(100);
  for (uint64_t step = 1; step <= 200; ++step) {
    const int64_t turn_us = now_us;
    now_us += up_to(3);
    timeline.Add(TimelineEvent::Slice(TimelineKind::kPlan, 0, step, turn_us, now_us));
    const std::string name = "req-" + std::to_string(step / 8);
    const auto kind =
        static_cast<TimelineKind>(static_cast<int>(TimelineKind::kArrived) + step % 4);
    if (step % 8 < 4) {
      timeline.Add(TimelineEvent::Request(kind, 0, step / 8, name, turn_us - up_to(500), turn_us));
    }
    const int64_t sent_us = now_us;
    now_us += up_to(900);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      TimelineEvent reply = ReplyOf(step, sent_us, now_us, now_us + kShardClock - up_to(50),
                                    static_cast<uint32_t>(up_to(900)));
      reply.track = static_cast<uint16_t>(rank);
      timeline.Add(reply);
    }
    timeline.Add(TimelineEvent::Slice(TimelineKind::kTurn, 0, 0, turn_us, now_us));
    now_us += up_to(5);
  }
  return timeline.End(now_us);
}

}  // namespace

TEST_CASE("A timeline keeps nothing unless it is taken, and no more than its bound", "[timeline]") {
  Timeline timeline;
  const TimelineEvent event = TimelineEvent::Slice(TimelineKind::kTurn, 0, 0, kBegin, kBegin + 1);
  timeline.Add(event);
  CHECK_FALSE(timeline.on());
  REQUIRE(timeline.Begin(kBegin, 3));
  CHECK(timeline.on());
  CHECK_FALSE(timeline.Begin(kBegin));  // one at a time
  for (int i = 0; i < 5; ++i) timeline.Add(event);
  const Timeline::Taken taken = timeline.End(kBegin + 10);
  CHECK(taken.events.size() == 3);
  CHECK(taken.dropped == 2);
  CHECK_FALSE(timeline.on());
  REQUIRE(timeline.Begin(kBegin));
  CHECK(timeline.End(kBegin).events.empty());
}

TEST_CASE("A shard's times are shifted by the quickest of its replies, whatever its clock says",
          "[timeline]") {
  Timeline timeline;
  timeline.Begin(kBegin);
  // The second reply took 40 us from shard to router, the first one 2,000: the router was late.
  timeline.Add(ReplyOf(1, kBegin + 100, kBegin + 3'100, kBegin + 1'100 + kShardClock, 900));
  timeline.Add(ReplyOf(2, kBegin + 1'100, kBegin + 2'140, kBegin + 2'100 + kShardClock, 950));
  const Timeline::Taken taken = timeline.End(kBegin + 5'000);
  const std::vector<TimelineEntry> entries = LayOut(taken);
  using Spans = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(Of(entries, Part::kDevice) == Spans{{240, 1'140}, {1'190, 2'140}});
  CHECK(Of(entries, Part::kHost) == Spans{{225, 235}, {1'175, 1'185}});
  CHECK(Of(entries, Part::kComm) == Spans{{690, 1'140}, {1'665, 2'140}});
}

TEST_CASE("A request that was there before and one that stays are drawn as far as they are seen",
          "[timeline]") {
  Timeline timeline;
  timeline.Begin(kBegin);
  timeline.Add(
      TimelineEvent::Request(TimelineKind::kEnded, 0, 7, "req-old", kBegin - 500, kBegin + 300));
  timeline.Add(
      TimelineEvent::Request(TimelineKind::kArrived, 0, 8, "req-new", kBegin + 50, kBegin + 100));
  timeline.Add(
      TimelineEvent::Request(TimelineKind::kPrefill, 0, 8, "req-new", kBegin + 90, kBegin + 120));
  const std::vector<TimelineEntry> entries = LayOut(timeline.End(kBegin + 1'000));
  const auto at = [&entries](Part part) {
    std::vector<int64_t> found;
    for (const auto& [from, to] : Of(entries, part)) found.push_back(from);
    return found;
  };
  using Times = std::vector<int64_t>;
  CHECK(at(Part::kRequestBegin) == Times{0, 50});
  CHECK(at(Part::kRequestEnd) == Times{300, 1'000});
  CHECK(at(Part::kDecodeBegin) == Times{0});
  CHECK(at(Part::kQueueBegin) == Times{90});
  CHECK(at(Part::kPrefillBegin) == Times{120});
  CHECK(at(Part::kPrefillEnd) == Times{1'000});
  // A point alone is no arrow.
  CHECK(at(Part::kFlowBegin) == Times{100});
  CHECK(at(Part::kFlowEnd) == Times{120});
}

TEST_CASE("Slices and phases lie inside each other or apart, whatever was measured", "[timeline]") {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    const Timeline::Taken taken = Busy(seed);
    std::map<std::tuple<Part, int, int>, std::vector<int64_t>> open;
    std::map<uint64_t, std::vector<Part>> requests;
    int64_t last_us = 0;
    for (const TimelineEntry& entry : LayOut(taken)) {
      REQUIRE(entry.at_us >= last_us);
      REQUIRE(entry.at_us + entry.length_us <= taken.end_us - taken.begin_us);
      last_us = entry.at_us;
      if (entry.part >= Part::kRequestBegin && entry.part <= Part::kDecodeEnd) {
        std::vector<Part>& parts = requests[taken.events[entry.event].id];
        const auto number = static_cast<uint8_t>(entry.part);
        if ((number - static_cast<uint8_t>(Part::kRequestBegin)) % 2 == 0) {
          parts.push_back(entry.part);
        } else {
          REQUIRE(!parts.empty());
          REQUIRE(static_cast<uint8_t>(parts.back()) + 1 == number);
          parts.pop_back();
        }
      }
      if (!entry.slice()) continue;
      REQUIRE(entry.length_us >= 0);
      const TimelineEvent& event = taken.events[entry.event];
      std::vector<int64_t>& ends = open[{entry.part, event.group, event.track}];
      while (!ends.empty() && ends.back() <= entry.at_us) ends.pop_back();
      REQUIRE((ends.empty() || entry.at_us + entry.length_us <= ends.back()));
      ends.push_back(entry.at_us + entry.length_us);
    }
  }
}

TEST_CASE("What is written is the same JSON whatever the pieces, also of nothing", "[timeline]") {
  const std::string whole = Document(Busy(1), size_t{1} << 30);
  CHECK(Document(Busy(1), 100) == whole);
  const boost::json::value parsed = boost::json::parse(whole);
  const boost::json::array& events = parsed.at("traceEvents").as_array();
  CHECK(events.size() > 1'000);
  CHECK(parsed.at("otherData").at("dropped_events").as_string() == "0");
  std::map<std::string, int> phases;
  for (const boost::json::value& event : events) {
    ++phases[std::string(event.at("ph").as_string())];
    CHECK(event.at("pid").is_int64());
  }
  CHECK(phases["b"] == phases["e"]);
  CHECK(phases["s"] == phases["f"]);
  CHECK(phases["s"] > 0);
  Timeline timeline;
  timeline.Begin(kBegin);
  const boost::json::value empty = boost::json::parse(Document(timeline.End(kBegin), 1));
  CHECK(empty.at("traceEvents").as_array().size() == 2);  // the names of two processes
}

TEST_CASE("A request's name cannot break out of its string", "[timeline]") {
  Timeline timeline;
  timeline.Begin(kBegin);
  timeline.Add(
      TimelineEvent::Request(TimelineKind::kArrived, 0, 1, "a\"},\n{\\", kBegin, kBegin + 1));
  const boost::json::value parsed = boost::json::parse(Document(timeline.End(kBegin + 2), 1));
  CHECK(parsed.at("traceEvents").as_array().back().at("name").as_string() == "a-},-{-");
}

}  // namespace weft::router

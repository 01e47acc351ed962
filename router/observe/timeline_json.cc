#include "router/observe/timeline_json.h"

#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "router/shards/call.h"

namespace weft::router {
namespace {

using Part = TimelineEntry::Part;

// Processes and threads of the drawing; the numbers mean nothing beyond it.
constexpr uint32_t kRouterPid = 1;
constexpr uint32_t kRequestsPid = 2;
constexpr uint32_t kRanksPid = 1000;
constexpr uint32_t kLoopTid = 1;
constexpr uint32_t kTextTid = 1000;
constexpr uint32_t kWireTid = 1;
constexpr uint32_t kHostTid = 2;
constexpr uint32_t kDeviceTid = 3;
constexpr uint32_t kCommTid = 4;

uint32_t RankPid(const TimelineEvent& event) { return kRanksPid * (1 + event.group) + event.track; }

absl::string_view RouterName(TimelineKind kind) {
  switch (kind) {
    case TimelineKind::kTurn:
      return "turn";
    case TimelineKind::kPlan:
      return "plan";
    case TimelineKind::kSend:
      return "send";
    case TimelineKind::kAnswer:
      return "answer";
    case TimelineKind::kFlush:
      return "hand over";
    default:
      return "text out";
  }
}

absl::string_view StepName(uint32_t call) {
  switch (static_cast<ShardCall>(call)) {
    case ShardCall::kPrefill:
      return "Prefill";
    case ShardCall::kDecode:
      return "Decode";
    default:
      return "FilterBatch";
  }
}

absl::string_view PhaseName(Part part) {
  switch (part) {
    case Part::kTextBegin:
    case Part::kTextEnd:
      return "text in";
    case Part::kQueueBegin:
    case Part::kQueueEnd:
      return "queue";
    case Part::kPrefillBegin:
    case Part::kPrefillEnd:
      return "prefill";
    default:
      return "decode";
  }
}

bool IsBegin(Part part) {
  return (static_cast<uint8_t>(part) - static_cast<uint8_t>(Part::kWireBegin)) % 2 == 0;
}

void WriteName(absl::string_view what, uint32_t pid, uint32_t tid, absl::string_view name,
               std::string* out) {
  absl::StrAppend(out, "{\"ph\":\"M\",\"ts\":0,\"pid\":", pid, ",\"tid\":", tid, ",\"name\":\"",
                  what, "\",\"args\":{\"name\":\"", name, "\"}},\n");
}

// Our own names are words; whoever names requests otherwise gets dashes.
std::string Word(absl::string_view text) {
  std::string word(text);
  for (char& c : word) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '-';
  }
  return word;
}

}  // namespace

TimelineJson::TimelineJson(Timeline::Taken taken, int64_t begin_unix_us)
    : taken_(std::move(taken)), begin_unix_us_(begin_unix_us), entries_(LayOut(taken_)) {}

bool TimelineJson::Write(size_t bytes, std::string* out) {
  const size_t end = out->size() + bytes;
  if (!std::exchange(named_, true)) WriteNames(out);
  while (at_ < entries_.size() && out->size() < end) {
    WriteEntry(entries_[at_++], out);
    if (at_ < entries_.size()) out->append(",\n");
  }
  if (at_ < entries_.size()) return true;
  WriteTail(out);
  return false;
}

void TimelineJson::WriteNames(std::string* out) const {
  absl::btree_set<uint32_t> loops;
  absl::btree_set<uint32_t> workers;
  absl::btree_set<std::pair<uint32_t, uint32_t>> ranks;
  for (const TimelineEvent& event : taken_.events) {
    if (event.kind == TimelineKind::kReply) {
      ranks.emplace(event.group, event.track);
    } else if (event.kind == TimelineKind::kTextOut) {
      workers.insert(event.track);
    } else {
      loops.insert(event.group);
    }
  }
  for (const uint32_t loop : loops) {
    WriteName("thread_name", kRouterPid, kLoopTid + loop, absl::StrCat("engine loop, group ", loop),
              out);
  }
  for (const uint32_t worker : workers) {
    WriteName("thread_name", kRouterPid, kTextTid + worker, absl::StrCat("text out ", worker), out);
  }
  for (const auto& [group, rank] : ranks) {
    const uint32_t pid = kRanksPid * (1 + group) + rank;
    WriteName("process_name", pid, 0, absl::StrCat("group ", group, " rank ", rank), out);
    WriteName("thread_name", pid, kWireTid, "wire", out);
    WriteName("thread_name", pid, kHostTid, "host: step thread", out);
    WriteName("thread_name", pid, kDeviceTid, "device", out);
    WriteName("thread_name", pid, kCommTid, "communication (sum of a step, drawn at its end)", out);
  }
  WriteName("process_name", kRequestsPid, 0, "requests", out);
  WriteName("process_name", kRouterPid, 0, "router", out);
  // The last one has no comma where nothing follows.
  if (entries_.empty()) out->resize(out->size() - 2);
}

void TimelineJson::WriteEntry(const TimelineEntry& entry, std::string* out) const {
  if (entry.slice()) return WriteSlice(entry, out);
  if (entry.part >= Part::kFlowBegin) return WriteFlow(entry, out);
  WriteStretch(entry, out);
}

void TimelineJson::WriteSlice(const TimelineEntry& entry, std::string* out) const {
  const TimelineEvent& event = taken_.events[entry.event];
  absl::StrAppend(out, "{\"ph\":\"X\",\"ts\":", entry.at_us, ",\"dur\":", entry.length_us);
  if (entry.part == Part::kRouter) {
    const bool text = event.kind == TimelineKind::kTextOut;
    absl::StrAppend(out, ",\"pid\":", kRouterPid,
                    ",\"tid\":", text ? kTextTid + event.track : kLoopTid + event.group,
                    ",\"cat\":\"router\",\"name\":\"", RouterName(event.kind), "\",\"args\":{");
    if (event.id > 0) absl::StrAppend(out, "\"step\":", event.id);
    if (event.kind == TimelineKind::kSend) {
      absl::StrAppend(out, ",\"call\":\"", StepName(event.values[0]),
                      "\",\"tokens\":", event.values[1], ",\"rows\":", event.values[2]);
    } else if (text) {
      absl::StrAppend(out, "\"tokens\":", event.values[0]);
    }
    out->append("}}");
    return;
  }
  const TimelineReply reply = event.reply();
  const uint32_t tid = entry.part == Part::kHost     ? kHostTid
                       : entry.part == Part::kDevice ? kDeviceTid
                                                     : kCommTid;
  absl::StrAppend(out, ",\"pid\":", RankPid(event), ",\"tid\":", tid);
  if (entry.part == Part::kHost) {
    out->append(",\"cat\":\"host\",\"name\":\"prepare\"");
  } else if (entry.part == Part::kDevice) {
    absl::StrAppend(out, ",\"cat\":\"device\",\"name\":\"", StepName(reply.call), "\"");
  } else {
    out->append(",\"cat\":\"communication\",\"name\":\"wait for other ranks\"");
  }
  absl::StrAppend(out, ",\"args\":{\"step\":", event.id, ",\"epoch\":", reply.epoch);
  if (entry.part == Part::kHost) {
    absl::StrAppend(out, ",\"host_us\":", reply.host_us, ",\"queue_us\":", reply.queue_us);
  } else if (entry.part == Part::kDevice) {
    absl::StrAppend(out, ",\"device_us\":", reply.device_us, ",\"comm_us\":", reply.comm_us);
  } else {
    absl::StrAppend(out, ",\"comm_us\":", reply.comm_us);
  }
  out->append("}}");
}

void TimelineJson::WriteStretch(const TimelineEntry& entry, std::string* out) const {
  const TimelineEvent& event = taken_.events[entry.event];
  const bool begin = IsBegin(entry.part);
  absl::StrAppend(out, "{\"ph\":\"", begin ? "b" : "e", "\",\"ts\":", entry.at_us);
  if (entry.part == Part::kWireBegin || entry.part == Part::kWireEnd) {
    const TimelineReply reply = event.reply();
    absl::StrAppend(out, ",\"pid\":", RankPid(event), ",\"tid\":", kWireTid,
                    ",\"cat\":\"wire\",\"id\":\"", event.group, ".", event.track, ".", reply.epoch,
                    ".", event.id, "\",\"name\":\"", StepName(reply.call), " call\"");
    if (begin) {
      const int64_t call_us = event.end_us - event.begin_us;
      const int64_t shard_us = int64_t{reply.queue_us} + reply.host_us + reply.device_us;
      absl::StrAppend(out, ",\"args\":{\"step\":", event.id, ",\"call_us\":", call_us,
                      ",\"wire_us\":", call_us > shard_us ? call_us - shard_us : 0, "}");
    }
    out->append("}");
    return;
  }
  const bool whole = entry.part <= Part::kRequestEnd;
  const std::string name = Word(event.name());
  absl::StrAppend(out, ",\"pid\":", kRequestsPid, ",\"tid\":1,\"cat\":\"request\",\"id\":\"",
                  event.id, "\",\"name\":\"",
                  whole ? absl::string_view(name) : PhaseName(entry.part), "\"");
  if (begin) absl::StrAppend(out, ",\"args\":{\"request_id\":\"", name, "\"}");
  out->append("}");
}

void TimelineJson::WriteFlow(const TimelineEntry& entry, std::string* out) const {
  const TimelineEvent& event = taken_.events[entry.event];
  const char* const phase = entry.part == Part::kFlowBegin ? "s"
                            : entry.part == Part::kFlowEnd ? "f"
                                                           : "t";
  absl::StrAppend(out, "{\"ph\":\"", phase, "\",\"bp\":\"e\",\"ts\":", entry.at_us,
                  ",\"pid\":", kRouterPid, ",\"tid\":", kLoopTid + event.group,
                  ",\"cat\":\"request\",\"id\":", event.id,
                  ",\"name\":\"request\",\"args\":{\"request_id\":\"", Word(event.name()), "\"}}");
}

void TimelineJson::WriteTail(std::string* out) const {
  absl::StrAppend(out, "\n],\"otherData\":{\"weft_version\":\"", Version(),
                  "\",\"begin_unix_us\":\"", begin_unix_us_, "\",\"duration_us\":\"",
                  taken_.end_us - taken_.begin_us, "\",\"dropped_events\":\"", taken_.dropped,
                  "\",\"clocks\":\"times of shards are shifted so that the quickest reply of each "
                  "rank and epoch was on its way for no time\"}}\n");
}

}  // namespace weft::router

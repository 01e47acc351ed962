// A timeline as the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open:
// a process for the router with a track for each engine loop and each worker of text out, one for
// each rank with wire, host, device and communication, and one for requests. Written piece by
// piece: a minute is tens of megabytes. One thread. Format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "router/observe/timeline.h"
#include "router/observe/timeline_layout.h"

namespace weft::router {

class TimelineJson {
 public:
  // `begin_unix_us`: the wall clock's time of its beginning.
  TimelineJson(Timeline::Taken taken, int64_t begin_unix_us);

  // What a document begins with, before anything is known of it.
  static constexpr char kHead[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  // Appends what follows kHead: about `bytes` with each call. False once that was the last of it.
  bool Write(size_t bytes, std::string* out);

 private:
  void WriteNames(std::string* out) const;
  void WriteEntry(const TimelineEntry& entry, std::string* out) const;
  void WriteSlice(const TimelineEntry& entry, std::string* out) const;
  void WriteStretch(const TimelineEntry& entry, std::string* out) const;
  void WriteFlow(const TimelineEntry& entry, std::string* out) const;
  void WriteTail(std::string* out) const;

  const Timeline::Taken taken_;
  const int64_t begin_unix_us_;
  const std::vector<TimelineEntry> entries_;
  size_t at_ = 0;
  bool named_ = false;
};

}  // namespace weft::router

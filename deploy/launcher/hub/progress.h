// How far a pull is, in words: bytes, rate, time left. Times are passed in. Pure; one owner.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace weft::hub {

// "12.3 MiB": three digits, units of 1024.
std::string FormatBytes(double bytes);
// "2 h 05 min", "3 min 20 s", "7 s".
std::string FormatSeconds(double seconds);

class Progress {
 public:
  // Of `files` with `bytes` in all, of which `have` were there before.
  Progress(uint32_t files, uint64_t bytes, uint64_t have);

  void OnArrived(uint64_t bytes_in_all, absl::Time now);
  void OnFileDone() { ++files_done_; }

  // "1.20 GiB of 4.50 GiB (26 %), 85.3 MiB/s, 39 s left, 2 of 7 files". Without rate and time
  // before there is one.
  std::string Line() const;
  // Of the last seconds; 0 = unknown.
  double bytes_per_s() const;

 private:
  // The rate is taken over so long.
  static constexpr absl::Duration kWindow = absl::Seconds(10);
  static constexpr absl::Duration kSampleEach = absl::Milliseconds(250);

  const uint32_t files_;
  const uint64_t bytes_;
  uint32_t files_done_ = 0;
  uint64_t arrived_;
  std::deque<std::pair<absl::Time, uint64_t>> samples_;
};

}  // namespace weft::hub

// Holds the other end of a connection to a minimum rate: it must move some bytes in every stall
// time, and a minimum in every window. Counts what its owner counts; looks at it when asked, a few
// times a second. Pure; owned by a connection, on its thread.

#pragma once

#include <cstdint>

namespace weft::router {

struct PaceLimits {
  int64_t stall_us = 0;  // 0 = no such limit
  int64_t window_us = 0;
  uint64_t window_bytes_min = 0;
};

class Pace {
 public:
  // From now on bytes are waited for; `bytes` have moved so far.
  void Start(int64_t now_us, uint64_t bytes) {
    running_ = true;
    moved_us_ = window_us_ = now_us;
    bytes_ = window_bytes_ = bytes;
  }
  void Stop() { running_ = false; }
  bool running() const { return running_; }

  // `bytes` have moved in all. False when that was too slow; true while stopped.
  bool Check(int64_t now_us, uint64_t bytes, const PaceLimits& limits) {
    if (!running_) return true;
    if (bytes > bytes_) {
      bytes_ = bytes;
      moved_us_ = now_us;
    }
    if (limits.stall_us > 0 && now_us - moved_us_ >= limits.stall_us) return false;
    if (now_us - window_us_ < limits.window_us) return true;
    if (bytes - window_bytes_ < limits.window_bytes_min) return false;
    window_us_ = now_us;
    window_bytes_ = bytes;
    return true;
  }

 private:
  bool running_ = false;
  int64_t moved_us_ = 0;
  int64_t window_us_ = 0;
  uint64_t bytes_ = 0;
  uint64_t window_bytes_ = 0;
};

}  // namespace weft::router

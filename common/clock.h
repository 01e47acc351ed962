// The clock as an argument: code that needs the time takes a Clock&, so that tests can hand in a
// ManualClock. Microseconds since an arbitrary fixed point, never going back. Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

class Clock {
 public:
  virtual ~Clock() = default;

  // Monotonic time in microseconds.
  virtual int64_t NowUs() const = 0;
};

// The machine's monotonic clock. One instance, created on first use, never destroyed.
const Clock& MonotonicClock();

// A clock that a test moves by hand.
class ManualClock : public Clock {
 public:
  explicit ManualClock(int64_t now_us = 0) : now_us_(now_us) {}

  int64_t NowUs() const override { return now_us_.load(std::memory_order_acquire); }
  void AdvanceUs(int64_t delta_us) { now_us_.fetch_add(delta_us, std::memory_order_acq_rel); }

 private:
  std::atomic<int64_t> now_us_;
};

}  // namespace weft

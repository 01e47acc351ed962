// The device thread's sign of life: it beats between its jobs, while idle and while it waits for
// other ranks; Info reads the age. Together with the process's CPU time it tells a hung shard from
// a slow one, and a stopped rank from those that wait for it. Lock-free; any thread.

#pragma once

#include <atomic>
#include <cstdint>

#include "common/clock.h"

namespace weft::shard {

class Heartbeat {
 public:
  explicit Heartbeat(const Clock& clock) : clock_(clock), last_us_(clock.NowUs()) {}

  void Beat() { last_us_.store(clock_.NowUs(), std::memory_order_relaxed); }

  // Microseconds since the last beat.
  int64_t age_us() const {
    const int64_t last_us = last_us_.load(std::memory_order_relaxed);
    const int64_t age_us = clock_.NowUs() - last_us;
    return age_us > 0 ? age_us : 0;
  }

 private:
  const Clock& clock_;
  std::atomic<int64_t> last_us_;
};

}  // namespace weft::shard

#include "common/clock.h"

#include <chrono>

namespace weft {
namespace {

class SteadyClock : public Clock {
 public:
  int64_t NowUs() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

const Clock& MonotonicClock() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace weft

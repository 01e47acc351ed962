// The simulation's time: a clock that stands still while anything runs, and a queue of what happens
// next. One thread; whoever has something to do later puts it here and is called then. Things of
// one moment happen in the order in which they were put down, so a run follows from its seed alone.

#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/clock.h"

namespace weft::router::sim {

// splitmix64's finaliser: all that is drawn in a simulation is a hash of the seed and of what it is
// drawn for, so that taking one request or fault away leaves the others as they were.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A row of draws that belongs to one thing.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t owner) : state_(Mix(seed ^ Mix(owner + 0x9E3779B97F4A7C15ull))) {}

  uint64_t Next() { return Mix(state_ += 0x9E3779B97F4A7C15ull); }
  // 0 .. below - 1; 0 for 0.
  int64_t Below(int64_t below) {
    return below <= 0 ? 0 : static_cast<int64_t>(Next() % static_cast<uint64_t>(below));
  }
  int64_t Between(int64_t least, int64_t most) { return least + Below(most - least + 1); }
  bool Chance(int64_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

// Something that is called when its time has come.
class Happening {
 public:
  virtual ~Happening() = default;
  // `kind` and `value` are those of the call of At.
  virtual void OnTime(uint32_t kind, uint64_t value) = 0;
};

class VirtualTime : public Clock {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t NowUs() const override { return now_us_; }
  // `what` is called at `at_us`, or now if that has passed. It must live until then.
  void At(int64_t at_us, Happening* what, uint32_t kind, uint64_t value = 0);
  // Lets the next thing happen; false when there is none.
  bool Next();
  // When that will be; kNever when there is nothing.
  int64_t next_us() const { return heap_.empty() ? kNever : heap_.front().at_us; }

 private:
  struct Entry {
    int64_t at_us;
    uint64_t order;
    Happening* what;
    uint32_t kind;
    uint64_t value;
  };
  static bool Later(const Entry& a, const Entry& b) {
    return a.at_us != b.at_us ? a.at_us > b.at_us : a.order > b.order;
  }

  // Monotonic time does not begin at 0, which stands for "never" in many places.
  int64_t now_us_ = 1'000'000;
  uint64_t order_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace weft::router::sim

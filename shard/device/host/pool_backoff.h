// When to do without compute helpers: a helper that loses its core to a neighbour process while it
// holds an item makes the whole region wait for milliseconds. Plain arithmetic on times that the
// caller passes in; owned and called by ComputePool's caller thread.
//
// Waits add to a debt that shrinks with the time run with helpers (a share of it). When the debt
// grows too large, helpers rest for a pause that doubles up to kPauseMaxUs each time they come back
// and fail again soon, and that falls back to kPauseMinUs after kTrustUs without failing. How much
// is forgiven depends on what helpers bring: little where one thread nearly reads what memory
// gives, nearly double the speed where threads compute.

#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::shard {

class PoolBackoff {
 public:
  static constexpr int64_t kPauseMinUs = 20'000;
  static constexpr int64_t kPauseMaxUs = 640'000;
  static constexpr int64_t kTrustUs = 100'000;
  struct Patience {
    // Of the time run with helpers, what may go in waits.
    double forgiven_share;
    // Less than one lost time slice (3 ms), or several.
    double debt_max_us;
  };
  static constexpr Patience kReading = {0.1, 1'000};
  static constexpr Patience kComputing = {0.4, 10'000};

  explicit PoolBackoff(Patience patience) : patience_(patience) {}

  // Whether helpers take part now.
  bool HelpersWanted(int64_t now_us) {
    if (paused_until_us_ == 0) return true;
    if (now_us < paused_until_us_) return false;
    paused_until_us_ = 0;
    trial_since_us_ = now_us;
    updated_us_ = now_us;
    debt_us_ = 0;
    return true;
  }

  // The caller waited `wait_us` for helpers that held items. True when helpers now rest.
  bool OnStall(int64_t now_us, int64_t wait_us) {
    const double forgiven = static_cast<double>(now_us - updated_us_) * patience_.forgiven_share;
    debt_us_ = std::max(0.0, debt_us_ - forgiven) + static_cast<double>(wait_us);
    updated_us_ = now_us;
    if (debt_us_ <= patience_.debt_max_us) return false;
    const bool trusted = now_us - trial_since_us_ > kTrustUs;
    pause_us_ = trusted ? kPauseMinUs : std::min(pause_us_ * 2, kPauseMaxUs);
    paused_until_us_ = now_us + pause_us_;
    return true;
  }

  int64_t pause_us() const { return pause_us_; }

 private:
  const Patience patience_;
  int64_t pause_us_ = kPauseMinUs / 2;
  int64_t paused_until_us_ = 0;
  int64_t trial_since_us_ = 0;
  int64_t updated_us_ = 0;
  double debt_us_ = 0;
};

}  // namespace weft::shard

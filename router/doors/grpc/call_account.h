// What the calls of one connection have taken of its allowance and not given back: its debt. A call
// takes one when its headers have come, and gives it back when it begins to be worked on, which has
// bounds of its own, or when it has ended well. Owned by the calls' accounts, under their lock.
// Pure: time is an input.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

namespace weft::router {

struct CallAllowance {
  // What it holds at most, in calls, and by what it grows.
  int64_t calls_burst = 320;
  int64_t calls_per_s = 50;
  // A call that its client cancels earlier than this after its beginning gives nothing back, unless
  // its deadline is earlier.
  int64_t early_us = 1'000'000;
  // A call with so early a deadline gives back then, however it ends, but so late after its
  // beginning at the earliest: clients whose calls have short deadlines may have that much of a
  // rate.
  int64_t deadline_min_us = 50'000;
};

class CallAccount {
 public:
  CallAccount(const CallAllowance& allowance, int64_t now_us)
      : full_(allowance.calls_burst * kOne),
        per_s_(allowance.calls_per_s),
        left_(full_),
        at_us_(now_us) {}

  // One call; false when nothing is left.
  bool Take() {
    if (left_ < kOne) return false;
    left_ -= kOne;
    return true;
  }
  // One that gave back, and should not have; what is left may become less than nothing.
  void TakeLate() { left_ = std::max(left_ - kOne, -full_); }
  void GiveBack() { left_ = std::min(left_ + kOne, full_); }
  void GiveBackAt(int64_t at_us) { later_us_.insert(at_us); }
  // What time has brought. It pays for no call that is still at its handler and not worked on.
  void Renew(int64_t now_us) {
    while (!later_us_.empty() && *later_us_.begin() <= now_us) {
      later_us_.erase(later_us_.begin());
      GiveBack();
    }
    const int64_t passed_us = std::clamp<int64_t>(now_us - at_us_, 0, 3600 * kOne);
    const int64_t most = std::max(left_, full_ - waiting_ * kOne);
    left_ = std::min(left_ + passed_us * per_s_, most);
    at_us_ = now_us;
  }

  // Calls at their handlers that are not worked on, and those that are; a call is in one of both
  // until gRPC has let go of it.
  void AddWaiting(int64_t calls) { waiting_ += calls; }
  void AddWorking(int64_t calls) { working_ += calls; }

  // A call was let in to be worked on, or ended well; or it was for nothing.
  void AddMerit() { merit_ = std::min(merit_ + 1, full_ / kOne); }
  void TakeMerit() { merit_ = std::max<int64_t>(merit_ - 1, 0); }
  int64_t merit() const { return merit_; }

  // In calls, never less than nothing.
  int64_t debt() const { return std::max((full_ - left_ + kOne - 1) / kOne, waiting_); }
  // Calls that gRPC holds still.
  int64_t held() const { return waiting_ + working_; }
  // Of the last Renew.
  int64_t at_us() const { return at_us_; }

 private:
  // In millionths of a call, so that time counts to the microsecond.
  static constexpr int64_t kOne = 1'000'000;

  int64_t full_;
  int64_t per_s_;
  int64_t left_;
  int64_t at_us_;
  int64_t waiting_ = 0;
  int64_t working_ = 0;
  int64_t merit_ = 0;
  // When calls give back what they took, the soonest first. As many as the allowance holds, at
  // most, have taken something that they have not given back.
  std::multiset<int64_t> later_us_;
};

}  // namespace weft::router

// How a watchdog sees that a thread comes round (common/watchdog.h). A thread of ours is watched
// from its first declared wait on: between two waits it has work, and must come to the next one in
// time. Without a watchdog a wait costs one look at a thread's own pointer.

#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

// One thread's sign of life; lives as long as the thread does.
struct ThreadWatch {
  // Since when it has had work; 0 = it waits, or is not watched yet.
  std::atomic<int64_t> busy_since_us{0};
  // Work that takes CPU time is work that goes on: it may be long.
  std::atomic<bool> computes{false};
};

// Of the calling thread; null where no watchdog runs, or it is none of ours.
ThreadWatch* ThisThreadWatch();

// The calling thread waits within this scope, and has work again behind it.
class WatchedWait {
 public:
  WatchedWait() : watch_(ThisThreadWatch()) {
    if (watch_ != nullptr) watch_->busy_since_us.store(0, std::memory_order_relaxed);
  }
  ~WatchedWait() {
    if (watch_ != nullptr) Return();
  }
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

 private:
  void Return();
  ThreadWatch* const watch_;
};

// For a thread whose waits are a library's: it has come round now, and must do so again in time.
void ComeRound();
// For a thread that multiplies for long: CPU time counts as life.
void WatchAsComputing();
// Nothing is expected of the calling thread until its next wait.
void StopWatching();

}  // namespace weft

// Finds threads that have work and do not come round, and says which and where they stand: a
// thread of its own looks at all others once a second, and of one that is late it logs, once, the
// name and the stack, which the stuck thread itself writes down in a signal handler. One per
// process, made by main before it starts other threads. It changes nothing: what follows from a
// stuck thread is /livez's and the time-outs' business.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace weft {

struct WatchdogOptions {
  // A thread may have work for so long.
  absl::Duration limit = absl::Seconds(10);
  // Called for each stuck thread that was found, on the watchdog's thread. May be null.
  std::function<void(const std::string& name)> on_stuck;
};

class Watchdog {
 public:
  // Starts it; null when the limit is 0.
  static std::unique_ptr<Watchdog> Start(WatchdogOptions options);
  virtual ~Watchdog() = default;
};

// The list of threads, for common/thread.cc: from here until the end of this scope the calling
// thread is one that is watched, where a watchdog runs.
class WatchedThread {
 public:
  explicit WatchedThread(const std::string& name);
  ~WatchedThread();
  WatchedThread(const WatchedThread&) = delete;
  WatchedThread& operator=(const WatchedThread&) = delete;
};

}  // namespace weft

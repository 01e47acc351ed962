// A named thread that is joined when its owner goes away. The name shows in top and in logs; the
// nice value lets compute threads stand behind the router's. Never detached.

#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace weft {

class Thread {
 public:
  Thread() = default;
  // Starts `body` at once. `name` is cut to 15 bytes. `nice` is 0 .. 19; raising it needs no
  // rights. When the process may start no more threads it says so and ends with kExitStartup: no
  // caller of this form could go on without.
  Thread(const std::string& name, absl::AnyInvocable<void()> body, int nice = 0);
  // The same for callers that can: RESOURCE_EXHAUSTED, with the way out.
  static absl::StatusOr<Thread> Start(const std::string& name, absl::AnyInvocable<void()> body,
                                      int nice = 0);
  ~Thread() { Join(); }

  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other);

  // Waits for the body to return. Safe to call twice.
  void Join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

// Whether this process may start `count` threads more: starts and ends them (20 us each).
// RESOURCE_EXHAUSTED with the way out when it may not. For main, before libraries that abort then.
absl::Status CheckThreadsLeft(uint32_t count);

// Names the calling thread (cut to 15 bytes).
void SetThreadName(const std::string& name);

// CPU time of this process so far, all threads, microseconds.
int64_t ProcessCpuUs();

}  // namespace weft

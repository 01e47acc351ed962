// SIGTERM, SIGINT and SIGHUP as values: ShutdownSignals masks them in every thread started later
// and turns them into a file descriptor that one thread waits on. SIGPIPE is ignored. Used by each
// process's main thread; never runs code in a signal handler.

#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft {

// What a SIGHUP means to a process: to read its files again (the value is returned by Wait, see
// IsReload), nothing (a shard has no files to read again), or what SIGTERM means.
enum class Hangup { kReloads, kIgnored, kStops };

class ShutdownSignals {
 public:
  // Blocks SIGTERM, SIGINT and, unless it is ignored, SIGHUP for the process and ignores SIGPIPE.
  // Call before any thread that may take signals.
  static absl::StatusOr<ShutdownSignals> Create(Hangup hangup);
  ~ShutdownSignals();

  ShutdownSignals(ShutdownSignals&& other) noexcept;
  ShutdownSignals& operator=(ShutdownSignals&&) = delete;

  // Waits for the next signal; its number, or nothing when `timeout` passed.
  std::optional<int> Wait(absl::Duration timeout);
  // True for a SIGHUP that asks to reload. One whose terminal has gone away asks to stop: nobody
  // would be left to end what was started there.
  bool IsReload(int number) const;

  // Readable when a signal is pending; for poll beside other descriptors.
  int fd() const { return fd_; }

 private:
  ShutdownSignals(int fd, Hangup hangup, bool had_terminal)
      : fd_(fd), hangup_(hangup), had_terminal_(had_terminal) {}
  int fd_;
  Hangup hangup_;
  // Standard input was a terminal at the start.
  bool had_terminal_;
};

// Asks the kernel to send SIGKILL to this process when its parent dies. FAILED_PRECONDITION when
// the parent is gone already.
absl::Status DieWithParent();

}  // namespace weft

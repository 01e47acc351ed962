// SIGTERM and SIGINT as values: BlockShutdownSignals masks them in every thread started later, and
// ShutdownSignals turns them into a file descriptor that one thread waits on. SIGPIPE is ignored.
// Used by each process's main thread; never runs code in a signal handler.

#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft {

class ShutdownSignals {
 public:
  // Blocks SIGTERM, SIGINT and SIGHUP for the process and ignores SIGPIPE. Call before any thread.
  static absl::StatusOr<ShutdownSignals> Create();
  ~ShutdownSignals();

  ShutdownSignals(ShutdownSignals&& other) noexcept;
  ShutdownSignals& operator=(ShutdownSignals&&) = delete;

  // Waits for the next signal; its number, or nothing when `timeout` passed.
  std::optional<int> Wait(absl::Duration timeout);

  // Readable when a signal is pending; for poll beside other descriptors.
  int fd() const { return fd_; }

 private:
  explicit ShutdownSignals(int fd) : fd_(fd) {}
  int fd_;
};

// Asks the kernel to send SIGKILL to this process when its parent dies. FAILED_PRECONDITION when
// the parent is gone already.
absl::Status DieWithParent();

}  // namespace weft

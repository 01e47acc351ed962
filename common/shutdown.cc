#include "common/shutdown.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace weft {

absl::StatusOr<ShutdownSignals> ShutdownSignals::Create(Hangup hangup) {
  signal(SIGPIPE, SIG_IGN);
  if (hangup == Hangup::kIgnored) signal(SIGHUP, SIG_IGN);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigaddset(&mask, SIGINT);
  if (hangup != Hangup::kIgnored) sigaddset(&mask, SIGHUP);
  if (pthread_sigmask(SIG_BLOCK, &mask, nullptr) != 0) {
    return absl::InternalError("pthread_sigmask failed");
  }
  const int fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "signalfd");
  return ShutdownSignals(fd, hangup, isatty(STDIN_FILENO) != 0);
}

ShutdownSignals::ShutdownSignals(ShutdownSignals&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      hangup_(other.hangup_),
      had_terminal_(other.had_terminal_) {}

bool ShutdownSignals::IsReload(int number) const {
  if (number != SIGHUP || hangup_ != Hangup::kReloads) return false;
  // A terminal that was hung up is none any more.
  return !had_terminal_ || isatty(STDIN_FILENO) != 0;
}

ShutdownSignals::~ShutdownSignals() {
  if (fd_ >= 0) close(fd_);
}

std::optional<int> ShutdownSignals::Wait(absl::Duration timeout) {
  const int timeout_ms = timeout == absl::InfiniteDuration()
                             ? -1
                             : static_cast<int>(absl::ToInt64Milliseconds(timeout));
  pollfd entry{fd_, POLLIN, 0};
  if (poll(&entry, 1, timeout_ms) <= 0) return std::nullopt;
  signalfd_siginfo info{};
  if (read(fd_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

absl::Status DieWithParent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return absl::ErrnoToStatus(errno, "PR_SET_PDEATHSIG");
  if (getppid() == 1) return absl::FailedPreconditionError("the parent process is gone");
  return absl::OkStatus();
}

}  // namespace weft

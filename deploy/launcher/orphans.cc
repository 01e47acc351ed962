#include "deploy/launcher/orphans.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <utility>

namespace weft::launcher {
namespace {

// How long somebody else may take to wait for his own child, behind which orphans may stand.
constexpr std::chrono::milliseconds kAgain{50};

}  // namespace

OrphanReaper::OrphanReaper(boost::asio::io_context& io,
                           absl::AnyInvocable<bool(pid_t) const> is_waited_for)
    : is_waited_for_(std::move(is_waited_for)), signals_(io, SIGCHLD), again_(io) {
  WaitForSignal();
}

void OrphanReaper::WaitForSignal() {
  signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (error) return;
    Reap();
    WaitForSignal();
  });
}

void OrphanReaper::Reap() {
  for (;;) {
    // The system names ended children one at a time, in its own order, and names the same one until
    // somebody waits for it.
    siginfo_t ended{};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    if (is_waited_for_(ended.si_pid)) break;
    waitpid(ended.si_pid, nullptr, WNOHANG);
  }
  again_.expires_after(kAgain);
  again_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Reap();
  });
}

}  // namespace weft::launcher

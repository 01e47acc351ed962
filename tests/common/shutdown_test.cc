// What signals mean, and what a SIGHUP reloads.

#include "common/shutdown.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/reloadables.h"
#include "tests/common/log_lines.h"

namespace weft {
namespace {

// Runs `body` in a process of its own, with no terminal at its standard input: signals and masks
// are the process's. Its exit code, or minus the signal that ended it.
int InChild(int (*body)()) {
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    // Whatever the test framework has set.
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_DFL);
    _exit(body());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_CASE("A SIGHUP reloads, is ignored or stops, as the process wants it", "[common]") {
  CHECK(InChild([] {
          auto signals = ShutdownSignals::Create(Hangup::kReloads);
          kill(getpid(), SIGHUP);
          const auto number = signals->Wait(absl::Seconds(10));
          return number == SIGHUP && signals->IsReload(*number) ? 7 : 1;
        }) == 7);
  CHECK(InChild([] {
          auto signals = ShutdownSignals::Create(Hangup::kIgnored);
          kill(getpid(), SIGHUP);
          kill(getpid(), SIGTERM);
          const auto number = signals->Wait(absl::Seconds(10));
          return number == SIGTERM && !signals->IsReload(*number) ? 7 : 1;
        }) == 7);
  CHECK(InChild([] {
          auto signals = ShutdownSignals::Create(Hangup::kStops);
          kill(getpid(), SIGHUP);
          const auto number = signals->Wait(absl::Seconds(10));
          return number == SIGHUP && !signals->IsReload(*number) ? 7 : 1;
        }) == 7);
}

TEST_CASE("A SIGHUP because the terminal has gone stops", "[common]") {
  CHECK(InChild([] {
          const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
          if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return 2;
          const int standard_input = open(ptsname(terminal), O_RDWR | O_NOCTTY);
          if (dup2(standard_input, STDIN_FILENO) < 0) return 3;
          auto signals = ShutdownSignals::Create(Hangup::kReloads);
          if (!signals->IsReload(SIGHUP)) return 4;
          close(terminal);
          return signals->IsReload(SIGHUP) ? 5 : 7;
        }) == 7);
}

TEST_CASE("A part that cannot be reloaded does not keep the others from it", "[common]") {
  Reloadables reloadables;
  CHECK(reloadables.ReloadAll() == 0);
  std::vector<std::string> order;
  reloadables.Add("keys", [&order] {
    order.push_back("keys");
    return absl::NotFoundError("keys.txt: gone");
  });
  reloadables.Add("certificates", [&order] {
    order.push_back("certificates");
    return absl::OkStatus();
  });
  const test::LogLines lines;
  CHECK(reloadables.ReloadAll() == 1);
  // The part itself says why, once.
  CHECK(lines.Count("error") == 0);
  CHECK(lines.Count("warning SIGHUP: keys stay as they were") == 1);
  CHECK(lines.Count("info reloaded certificates") == 1);
  CHECK(order == std::vector<std::string>{"keys", "certificates"});
}

}  // namespace
}  // namespace weft

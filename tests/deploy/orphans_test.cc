#include "deploy/launcher/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include <catch2/catch.hpp>

namespace weft::launcher {
namespace {

// A process whose parent is gone, so that it is this process's child, and which ends when `*alive`
// is closed.
pid_t ForkOrphan(int* alive) {
  int pids[2];
  int life[2];
  REQUIRE(pipe(pids) == 0);
  REQUIRE(pipe(life) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    close(life[1]);
    const pid_t orphan = fork();
    if (orphan == 0) {
      char byte = 0;
      (void)!read(life[0], &byte, 1);
      _exit(0);
    }
    (void)!write(pids[1], &orphan, sizeof(orphan));
    _exit(0);
  }
  pid_t orphan = 0;
  // The reaper's signals interrupt what waits.
  REQUIRE(TEMP_FAILURE_RETRY(read(pids[0], &orphan, sizeof(orphan))) == sizeof(orphan));
  REQUIRE(TEMP_FAILURE_RETRY(waitpid(parent, nullptr, 0)) == parent);
  for (const int fd : {pids[0], pids[1], life[0]}) close(fd);
  *alive = life[1];
  return orphan;
}

// One that has ended and was waited for is nobody.
bool IsReaped(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

void RunUntilReaped(boost::asio::io_context& io, pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!IsReaped(pid) && std::chrono::steady_clock::now() < deadline) {
    io.run_for(std::chrono::milliseconds(10));
  }
}

TEST_CASE("Orphans are reaped, and children that somebody waits for are left to him",
          "[launcher]") {
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  boost::asio::io_context io;
  pid_t own = 0;
  OrphanReaper reaper(io, [&](pid_t pid) { return pid == own; });
  int alive = -1;
  pid_t orphan = ForkOrphan(&alive);
  close(alive);
  RunUntilReaped(io, orphan);
  CHECK(IsReaped(orphan));

  own = fork();
  if (own == 0) _exit(3);
  orphan = ForkOrphan(&alive);
  close(alive);
  siginfo_t ended{};
  REQUIRE(TEMP_FAILURE_RETRY(waitid(P_PID, orphan, &ended, WEXITED | WNOWAIT)) == 0);
  io.run_for(std::chrono::milliseconds(200));
  int status = 0;
  REQUIRE(TEMP_FAILURE_RETRY(waitpid(own, &status, 0)) == own);
  CHECK(WEXITSTATUS(status) == 3);
  // No signal comes any more, and the orphan may have stood behind the other one.
  RunUntilReaped(io, orphan);
  CHECK(IsReaped(orphan));
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

}  // namespace
}  // namespace weft::launcher

#include "common/thread.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace weft {
namespace {

TEST_CASE("A process that may start no more threads is told so by a Status", "[common][no_tsan]") {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit few{4, 4};
    setrlimit(RLIMIT_NPROC, &few);
    // The limit does not bind root.
    if (getuid() == 0 && setuid(12346) != 0) _exit(3);
    const absl::Status many = CheckThreadsLeft(8);
    if (!absl::IsResourceExhausted(many)) _exit(4);
    if (!absl::StrContains(many.message(), "ulimit -u")) _exit(5);
    _exit(CheckThreadsLeft(0).ok() ? 7 : 6);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(CheckThreadsLeft(16).ok());
}

TEST_CASE("A thread that was started runs and is joined", "[common]") {
  std::atomic<int> runs{0};
  {
    auto thread = Thread::Start("a name longer than fifteen", [&runs] { ++runs; });
    REQUIRE(thread.ok());
  }
  CHECK(runs == 1);
}

}  // namespace
}  // namespace weft

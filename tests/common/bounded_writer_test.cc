// Lines into pipes that are read late, never or no more.

#include "common/bounded_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/log.h"

namespace weft {
namespace {

constexpr size_t kBytesMax = 4096;

std::string Notice(uint64_t lines) { return absl::StrCat(lines, " lines dropped\n"); }

// Two connected descriptors, full to the brim.
struct Full {
  explicit Full(bool socket) {
    REQUIRE((socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) == 0);
    if (socket) std::swap(ends[0], ends[1]);
    const int flags = fcntl(ends[1], F_GETFL);
    REQUIRE(fcntl(ends[1], F_SETFL, flags | O_NONBLOCK) == 0);
    const std::string bytes(1024, '.');
    while (write(ends[1], bytes.data(), bytes.size()) > 0) filled = true;
    while (write(ends[1], bytes.data(), 1) > 0) filled = true;
    REQUIRE(fcntl(ends[1], F_SETFL, flags) == 0);
  }
  ~Full() {
    close(ends[0]);
    close(ends[1]);
  }

  // Reads until `end` was read; what came without the filling.
  std::string ReadUntil(const std::string& end) const {
    std::string text;
    char bytes[4096];
    while (text.size() < end.size() || text.substr(text.size() - end.size()) != end) {
      const ssize_t count = read(ends[0], bytes, sizeof(bytes));
      REQUIRE(count > 0);
      text.append(bytes, static_cast<size_t>(count));
    }
    text.erase(0, text.find_first_not_of('.'));
    return text;
  }

  int ends[2];
  bool filled = false;
};

TEST_CASE("Who writes to a full pipe or socket never waits, and what is lost is told", "[common]") {
  const bool socket = GENERATE(false, true);
  const Full full(socket);
  BoundedWriter writer(full.ends[1], kBytesMax, Notice);
  const absl::Time begin = absl::Now();
  const std::string line = std::string(99, 'x') + "\n";
  constexpr uint64_t kLines = 1000;
  for (uint64_t i = 0; i < kLines; ++i) writer.Push(line, i % 2 == 0);
  CHECK(absl::Now() - begin < absl::Seconds(5));
  // Forty lines fit into the buffer.
  const uint64_t dropped = writer.dropped_lines();
  CHECK(dropped == kLines - kBytesMax / line.size());
  CHECK_FALSE(writer.Flush(absl::Milliseconds(1)));

  std::string expected;
  for (uint64_t i = 0; i < kLines - dropped; ++i) expected += line;
  expected += Notice(dropped);
  CHECK(full.ReadUntil("dropped\n") == expected);
  // From now on it flows, and nothing is told twice.
  CHECK(writer.Flush(absl::Seconds(10)));
  writer.Push("after\n", false);
  CHECK(full.ReadUntil("after\n") == "after\n");
  CHECK(writer.dropped_lines() == dropped);
}

TEST_CASE("A writer goes away within its bound though nobody reads", "[common]") {
  const Full full(/*socket=*/false);
  const absl::Time begin = absl::Now();
  {
    BoundedWriter writer(full.ends[1], kBytesMax, Notice);
    writer.Push("never read\n", true);
  }
  const absl::Duration took = absl::Now() - begin;
  CHECK(took >= BoundedWriter::kLastFlush);
  CHECK(took < BoundedWriter::kLastFlush + absl::Seconds(5));
}

TEST_CASE("A pipe that others write to as well stays blocking for them", "[common]") {
  const Full full(/*socket=*/false);
  BoundedWriter writer(full.ends[1], kBytesMax, Notice);
  writer.Push("line\n", true);
  CHECK((fcntl(full.ends[1], F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("Lines into a pipe without a reader are counted as dropped", "[common]") {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  {
    BoundedWriter writer(ends[1], kBytesMax, Notice);
    close(ends[0]);
    writer.Push("one\n", true);
    writer.Push("two\n", true);
    CHECK(writer.Flush(absl::Seconds(10)));
    CHECK(writer.dropped_lines() == 2);
  }
  close(ends[1]);
}

TEST_CASE("A full disk is no reader that went away: lines wait for room, and nothing spins",
          "[common]") {
  const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  {
    BoundedWriter writer(fd, kBytesMax, Notice);
    const std::string line = std::string(99, 'x') + "\n";
    constexpr uint64_t kLines = 100;
    for (uint64_t i = 0; i < kLines; ++i) writer.Push(line, true);
    const auto cpu_us = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
             usage.ru_stime.tv_usec;
    };
    const int64_t before_us = cpu_us();
    CHECK_FALSE(writer.Flush(absl::Milliseconds(300)));
    CHECK(cpu_us() - before_us < 100'000);
    CHECK(writer.dropped_lines() == kLines - kBytesMax / line.size());
  }
  close(fd);
}

// What a child process that runs `body` writes to stderr, and how it ended.
std::string OfChild(void (*body)(), int* wait_status) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGABRT, SIG_DFL);  // the test framework's handler would speak too
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char bytes[4096];
  ssize_t count = 0;
  while ((count = read(ends[0], bytes, sizeof(bytes))) > 0) {
    text.append(bytes, static_cast<size_t>(count));
  }
  close(ends[0]);
  waitpid(pid, wait_status, 0);
  return text;
}

TEST_CASE("A failed check comes out behind the lines before it", "[common]") {
  int status = 0;
  const std::string text = OfChild(
      [] {
        (void)InitLogging("test", LogFormat::kText, "info");
        WEFT_LOG_INFO("first");
        WEFT_LOG_INFO("second");
        WEFT_CHECK_EQ(1, 2);
      },
      &status);
  INFO(text);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  const size_t second = text.find("test: second\n");
  const size_t check = text.find("CHECK failed: 1 == 2 (1 vs. 2)\n");
  CHECK(text.find("test: first\n") < second);
  REQUIRE(check != std::string::npos);
  CHECK(second < check);
}

TEST_CASE("A process that may start no thread logs all the same", "[common]") {
  int status = 0;
  // Root may start any number: become somebody with no room for a second one.
  const std::string text = OfChild(
      [] {
        const rlimit one{1, 1};
        setrlimit(RLIMIT_NPROC, &one);
        if (getuid() == 0 && setuid(12345) != 0) _exit(3);
        (void)InitLogging("test", LogFormat::kText, "info");
        WEFT_LOG_INFO("alone");
        const Thread impossible("impossible", [] {});
      },
      &status);
  INFO(text);
  CHECK(text.find("test: alone\n") != std::string::npos);
  CHECK(text.find("cannot start the thread \"impossible\"") != std::string::npos);
  CHECK(text.find("ulimit -u") != std::string::npos);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}

}  // namespace
}  // namespace weft

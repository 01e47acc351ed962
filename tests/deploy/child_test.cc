#include "deploy/launcher/child.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include "common/wait_status.h"

namespace weft::launcher {
namespace {

TEST_CASE("A child's lines and exit code arrive, lines first", "[launcher]") {
  boost::asio::io_context io;
  std::vector<std::string> out;
  std::vector<std::string> err;
  int status = -1;
  size_t lines_at_exit = 0;
  Child::Callbacks callbacks;
  callbacks.on_line = [&](const std::string& line, bool is_stdout) {
    (is_stdout ? out : err).push_back(line);
  };
  callbacks.on_exit = [&](int wait_status) {
    status = wait_status;
    lines_at_exit = out.size() + err.size();
  };
  auto child =
      Child::Spawn(io, {"/bin/sh", "-c", "echo one; echo two; echo bad >&2; printf tail; exit 3"},
                   {}, std::move(callbacks));
  REQUIRE(child.ok());
  io.run();
  CHECK(out == std::vector<std::string>{"one", "two", "tail"});
  CHECK(err == std::vector<std::string>{"bad"});
  CHECK(lines_at_exit == 4);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  CHECK(DescribeWaitStatus(status) == "exit code 3");
}

TEST_CASE("A signal ends a child and is described", "[launcher]") {
  boost::asio::io_context io;
  int status = -1;
  Child::Callbacks callbacks;
  callbacks.on_exit = [&](int wait_status) { status = wait_status; };
  // It stops itself and never ends by itself, whatever our stdin is.
  auto child = Child::Spawn(io, {"/bin/sh", "-c", "kill -STOP $$"}, {}, std::move(callbacks));
  REQUIRE(child.ok());
  (*child)->Signal(SIGKILL);
  io.run();
  REQUIRE(WIFSIGNALED(status));
  CHECK(DescribeWaitStatus(status) == "signal 9 (Killed)");
}

TEST_CASE("A child has the environment that it was given and no other", "[launcher]") {
  REQUIRE(setenv("WEFT_TEST_LEAK", "1", 1) == 0);
  boost::asio::io_context io;
  std::vector<std::string> out;
  Child::Callbacks callbacks;
  callbacks.on_line = [&](const std::string& line, bool) { out.push_back(line); };
  auto child = Child::Spawn(io, {"/bin/sh", "-c", "echo $GIVEN; echo ${WEFT_TEST_LEAK:-none}"},
                            {"GIVEN=here"}, std::move(callbacks));
  REQUIRE(child.ok());
  io.run();
  unsetenv("WEFT_TEST_LEAK");
  CHECK(out == std::vector<std::string>{"here", "none"});
}

TEST_CASE("Destroying a child leaves no process", "[launcher]") {
  boost::asio::io_context io;
  auto child = Child::Spawn(io, {"/bin/sh", "-c", "kill -STOP $$"}, {}, {});
  REQUIRE(child.ok());
  const pid_t pid = (*child)->pid();
  child->reset();
  CHECK(kill(pid, 0) != 0);
  io.run();
}

TEST_CASE("A binary that does not exist ends with 127", "[launcher]") {
  boost::asio::io_context io;
  int status = -1;
  Child::Callbacks callbacks;
  callbacks.on_exit = [&](int wait_status) { status = wait_status; };
  auto child = Child::Spawn(io, {"/no/such/binary"}, {}, std::move(callbacks));
  REQUIRE(child.ok());
  io.run();
  CHECK(DescribeWaitStatus(status) == "exit code 127");
}

}  // namespace
}  // namespace weft::launcher

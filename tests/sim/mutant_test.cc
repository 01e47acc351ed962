// Built once for each mutant of the scheduler (tests/mutants): the simulation must catch it, with
// the scheduler's own checks and, where the fault shows outside, also without them.

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>

#include "tests/sim/simulation.h"

namespace weft::router {
namespace {

// Runs a simulation in a child process; the check that stopped it, or nothing.
std::string CaughtBy(uint64_t seed, bool check_invariants) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    std::signal(SIGABRT, SIG_DFL);
    SimulationOptions options;
    options.seed = seed;
    options.requests = 2000;
    options.check_invariants = check_invariants;
    options.kv_windows = WEFT_MUTANT_OF_WINDOWS != 0;
    RunSimulation(options);
    _exit(0);
  }
  close(ends[1]);
  std::string message;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) message.append(buffer, n);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) {
    REQUIRE(WEXITSTATUS(status) == 0);
    return "";
  }
  REQUIRE(WIFSIGNALED(status));
  // A check, not a crash.
  REQUIRE(WTERMSIG(status) == SIGABRT);
  REQUIRE(message.find("CHECK failed") != std::string::npos);
  return message;
}

TEST_CASE("The simulation catches the mutant " WEFT_MUTANT, "[sim][mutant]") {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const std::string inside = CaughtBy(seed, true);
    CHECK(inside != "");
    std::cout << "seed " << seed << ", all checks: " << inside;
    if (!WEFT_MUTANT_SHOWS_OUTSIDE) continue;
    const std::string outside = CaughtBy(seed, false);
    CHECK(outside != "");
    std::cout << "seed " << seed << ", seen from outside: " << outside;
  }
}

}  // namespace
}  // namespace weft::router

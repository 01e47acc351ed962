// The decisions of deploy/launcher/restart_policy.h, row by row.

#include "deploy/launcher/restart_policy.h"

#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include "common/exit_code.h"

namespace weft::launcher {
namespace {

constexpr int Exit(int code) { return W_EXITCODE(code, 0); }
constexpr int Killed(int signal_number) { return W_EXITCODE(0, signal_number); }
constexpr absl::Duration kYoung = absl::Milliseconds(10);

// How many starts follow when a child always ends in the same way; at most ten are tried.
int Restarts(int wait_status, bool ready) {
  RestartHistory history;
  int restarts = 0;
  while (restarts < 10 && !DecideRestart(wait_status, ready, kYoung, {}, &history).give_up) {
    ++restarts;
  }
  return restarts;
}

TEST_CASE("What ended before the server was ready is started again only for mishaps",
          "[launcher]") {
  for (const int code : {int{kExitOk}, int{kExitStartup}, int{kExitCut}, int{kExitFatal}, 127}) {
    INFO(code);
    CHECK(Restarts(Exit(code), /*ready=*/false) == 0);
  }
  CHECK(Restarts(Exit(kExitStuck), /*ready=*/false) == kMishapsMax);
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGKILL, SIGILL}) {
    INFO(signal_number);
    CHECK(Restarts(Killed(signal_number), /*ready=*/false) == kMishapsMax);
  }
}

TEST_CASE("Mishaps of different kinds count together", "[launcher]") {
  RestartHistory history;
  CHECK_FALSE(DecideRestart(Killed(SIGSEGV), false, kYoung, {}, &history).give_up);
  CHECK_FALSE(DecideRestart(Exit(kExitStuck), false, kYoung, {}, &history).give_up);
  CHECK_FALSE(DecideRestart(Killed(SIGABRT), false, kYoung, {}, &history).give_up);
  CHECK(DecideRestart(Exit(kExitStuck), false, kYoung, {}, &history).give_up);
}

TEST_CASE("What has served is started again whatever ended it", "[launcher]") {
  for (const int status : {Exit(kExitOk), Exit(kExitStartup), Exit(kExitStuck), Exit(kExitFatal),
                           Exit(77), Killed(SIGKILL), Killed(SIGSEGV)}) {
    INFO(status);
    CHECK(Restarts(status, /*ready=*/true) == 10);
  }
}

TEST_CASE("Who ends young waits longer each time, who has served is wanted back at once",
          "[launcher]") {
  const RestartTimes times;
  RestartHistory history;
  const auto wait = [&](absl::Duration ran) {
    return DecideRestart(Killed(SIGKILL), true, ran, times, &history).wait;
  };
  CHECK(wait(kYoung) == absl::ZeroDuration());
  CHECK(wait(kYoung) == times.backoff_first);
  CHECK(wait(kYoung) == times.backoff_first * 2);
  for (int i = 0; i < 10; ++i) wait(kYoung);
  CHECK(wait(kYoung) == times.backoff_max);
  CHECK(wait(times.young) == absl::ZeroDuration());
  CHECK(wait(kYoung) == absl::ZeroDuration());
  CHECK(wait(kYoung) == times.backoff_first);
}

}  // namespace
}  // namespace weft::launcher

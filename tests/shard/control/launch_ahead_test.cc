// The executor over a device that works while the host prepares: two steps launched, results in
// order, and what becomes of launched steps when something goes wrong.

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "tests/shard/control/executor_rig.h"

namespace weft::shard {
namespace {

// Says when so many steps have been launched, and fails the launches from one on.
struct Launches {
  absl::Mutex mutex;
  int count = 0;
  int fail_from = 1000;

  absl::Status Add() {
    absl::MutexLock lock(&mutex);
    return ++count >= fail_from ? absl::InternalError("cannot launch") : absl::OkStatus();
  }
  void Await(int wanted) {
    absl::MutexLock lock(&mutex);
    const auto here = [&] { return count >= wanted; };
    mutex.Await(absl::Condition(&here));
  }
};

struct AheadRig {
  AheadRig() : AheadRig(Options()) {}
  explicit AheadRig(FakeRunnerOptions options, ExecutorOptions executor = {})
      : rig(Wired(std::move(options)), std::move(executor)) {
    rig.Load();
    REQUIRE(rig.Form(1).ok());
    MakePrefill(&first, 1, 1);
    MakeDecode(&second, 1, 2);
    MakeDecode(&third, 1, 3);
  }

  static FakeRunnerOptions Options() {
    FakeRunnerOptions options;
    options.launches = 2;
    return options;
  }
  FakeRunnerOptions Wired(FakeRunnerOptions options) {
    options.work_left = [this] { return work_left_us.load(); };
    options.ready = [this] { return ready.load(); };
    options.on_run = [this](const StepBatch&) { return launches.Add(); };
    return options;
  }

  std::atomic<bool> ready{false};
  std::atomic<int64_t> work_left_us{0};
  Launches launches;
  // They outlive the executor, which answers all that it was given, at its end at the latest.
  PendingPrefill first;
  PendingDecode second, third;
  ExecutorRig rig;
};

}  // namespace

TEST_CASE("Two steps are launched before the first has ended", "[shard][executor]") {
  AheadRig test;
  test.rig.Start(&test.first);
  test.rig.Start(&test.second);
  test.rig.Start(&test.third);
  test.launches.Await(2);
  CHECK_FALSE(test.first.done.HasBeenNotified());
  test.ready = true;
  REQUIRE(test.first.Wait().ok());
  REQUIRE(test.second.Wait().ok());
  REQUIRE(test.third.Wait().ok());
  std::vector<TokenId> log = {1, 2, 3};
  for (const v1::StepResponse* response :
       {&test.first.response, &test.second.response, &test.third.response}) {
    REQUIRE(response->ids_size() == 1);
    CHECK(response->ids(0) == FakeModelRunner::NextToken(log, FakeRunnerOptions{}.vocab_size));
    log.push_back(response->ids(0));
  }
}

TEST_CASE("LeaveGroup ends launched steps", "[shard][executor]") {
  AheadRig test;
  test.rig.Start(&test.first);
  test.rig.Start(&test.second);
  test.launches.Await(2);
  CHECK(test.rig.Leave(1).ok());
  CHECK(absl::IsAborted(test.first.Wait()));
  CHECK(absl::IsAborted(test.second.Wait()));
  // The next epoch begins with nothing launched.
  test.ready = true;
  REQUIRE(test.rig.Form(2).ok());
  PendingPrefill again;
  MakePrefill(&again, 2, 1);
  CHECK(test.rig.Run(&again).ok());
}

TEST_CASE("A device that works on a step shows life for as long as the step may take",
          "[shard][executor]") {
  AheadRig test;
  test.work_left_us = 1;
  test.rig.Start(&test.first);
  test.launches.Await(1);
  const int64_t launched_us = MonotonicClock().NowUs();
  // Nothing beats while the device thread looks for the step's end.
  while (MonotonicClock().NowUs() - launched_us < 300'000) {
    REQUIRE(test.rig.Info().heartbeat_age_us() == 0);
  }
  test.work_left_us = 0;
  CHECK(test.rig.Info().heartbeat_age_us() >= 300'000);
  test.ready = true;
  REQUIRE(test.first.Wait().ok());
}

TEST_CASE("LeaveGroup waits for what launched steps may take", "[shard][executor]") {
  FakeRunnerOptions options = AheadRig::Options();
  Launches ends;
  std::atomic<bool> ended{false};
  options.on_end_epoch = [&] {
    ends.Add().IgnoreError();
    while (!ended.load()) {
    }
  };
  ExecutorOptions executor;
  executor.leave_timeout = absl::Milliseconds(20);
  AheadRig test(options, executor);
  test.work_left_us = 100'000;
  test.rig.Start(&test.first);
  test.launches.Await(1);
  PendingLeave leave;
  test.rig.StartLeave(&leave, 1);
  ends.Await(1);
  const int64_t begin_us = MonotonicClock().NowUs();
  while (MonotonicClock().NowUs() - begin_us < 300'000) REQUIRE_FALSE(test.rig.stuck.load());
  SECTION("one that ends in time costs nothing") {
    ended = true;
    CHECK(leave.Wait().ok());
    CHECK_FALSE(test.rig.stuck.load());
  }
  SECTION("one that is over due ends the process") {
    test.work_left_us = 0;
    while (!test.rig.stuck.load()) {
    }
    ended = true;
    CHECK(leave.Wait().ok());
  }
}

TEST_CASE("A launch that fails leaves the step before it alone", "[shard][executor]") {
  AheadRig test;
  test.launches.fail_from = 2;
  test.rig.Start(&test.first);
  test.rig.Start(&test.second);
  test.launches.Await(2);
  test.ready = true;
  CHECK(test.first.Wait().ok());
  CHECK(absl::IsInternal(test.second.Wait()));
  CHECK_FALSE(test.rig.stuck.load());
}

TEST_CASE("A device lost in the warm-up ends the process too", "[shard][executor]") {
  FakeRunnerOptions options;
  options.lost_with = absl::InternalError("GPU 0: an illegal memory access");
  options.on_warmup = [] { return absl::InternalError("CUDA: warm-up"); };
  ExecutorRig rig(options);
  rig.Load();
  CHECK(absl::IsInternal(rig.Form(1)));
  CHECK(rig.Leave(1).ok());
  CHECK(rig.stuck.load());
}

TEST_CASE("A lost device ends the process", "[shard][executor]") {
  FakeRunnerOptions options = AheadRig::Options();
  options.lost_with = absl::InternalError("GPU 0: unspecified launch failure");
  AheadRig test(options);
  test.launches.fail_from = 1;
  test.rig.Start(&test.first);
  CHECK(absl::IsInternal(test.first.Wait()));
  // The device thread says so right after the answer; Leave waits for it.
  CHECK(test.rig.Leave(1).ok());
  CHECK(test.rig.stuck.load());
}

}  // namespace weft::shard

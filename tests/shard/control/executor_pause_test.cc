// An epoch that ends with its group whole: what a shard keeps of it, when it does not, and what
// becomes of that in the next one.

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/shard/control/executor_rig.h"

namespace weft::shard {
namespace {

constexpr uint64_t kNextRouter = 99;

FakeRunnerOptions Keeping() {
  FakeRunnerOptions fake;
  fake.keeps = true;
  return fake;
}

// Two ranks of a group.
struct PairRig {
  PairRig() : zero(Keeping(), RankOptions(0, 2)), one(Keeping(), RankOptions(1, 2)) {
    zero.Load();
    one.Load();
  }

  void Form(uint64_t epoch, uint64_t router = kRouter) {
    const auto token = zero.Rendezvous(epoch, router);
    REQUIRE(token.ok());
    PendingJoin join[2];
    zero.StartJoin(&join[0], epoch, *token, router);
    one.StartJoin(&join[1], epoch, *token, router);
    REQUIRE(join[0].Wait().ok());
    REQUIRE(join[1].Wait().ok());
    Warm(epoch, router);
  }

  void Warm(uint64_t epoch, uint64_t router = kRouter) {
    for (ExecutorRig* rig : {&zero, &one}) {
      PendingWarmup warmup;
      rig->StartWarmup(&warmup, epoch, router);
      REQUIRE(warmup.Wait().ok());
    }
  }

  // The first step of an epoch, which meets the other rank.
  void CheckStep(uint64_t epoch) {
    PendingPrefill step[2];
    for (PendingPrefill& call : step) MakePrefill(&call, epoch, 1);
    zero.Start(&step[0]);
    one.Start(&step[1]);
    REQUIRE(step[0].Wait().ok());
    REQUIRE(step[1].Wait().ok());
    std::vector<TokenId> log = {1, 2, 3};
    CHECK(step[0].response.ids(0) == Expect(&log));
  }

  ExecutorRig zero;
  ExecutorRig one;
};

}  // namespace

TEST_CASE("The next router's epoch goes on with the communicator of a whole group",
          "[shard][executor]") {
  PairRig pair;
  pair.Form(1);
  pair.CheckStep(1);
  for (ExecutorRig* rig : {&pair.zero, &pair.one}) {
    CHECK(rig->Info().kept_epoch() == 0);
    REQUIRE(rig->Pause(2, kNextRouter).ok());
    CHECK(rig->Info().state() == v1::SHARD_STATE_READY);
    CHECK(rig->Info().kept_epoch() == 1);
  }
  for (ExecutorRig* rig : {&pair.zero, &pair.one}) {
    REQUIRE(rig->Rejoin(3, 1, kNextRouter).ok());
    CHECK(rig->Info().state() == v1::SHARD_STATE_JOINED);
    CHECK(rig->Info().kept_epoch() == 0);
    CHECK(rig->runner->epochs_begun() == 1);
    CHECK(rig->runner->epochs_resumed() == 1);
  }
  pair.Warm(3, kNextRouter);
  // Slot 0, block 0 and sequence 5 are free again.
  pair.CheckStep(3);
  REQUIRE(pair.zero.Pause(4).ok());
  CHECK(pair.zero.Info().kept_epoch() == 3);
}

TEST_CASE("A rank that has not kept the communicator refuses to go on with it",
          "[shard][executor]") {
  PairRig pair;
  pair.Form(1);
  REQUIRE(pair.zero.Pause(2).ok());
  REQUIRE(pair.one.Leave(2).ok());
  CHECK(pair.one.Info().kept_epoch() == 0);
  const absl::Status refused = pair.one.Rejoin(3, 1);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), "kept_epoch"));
  // Another epoch's is not the one that was kept, and is gone with the attempt.
  CHECK(absl::IsFailedPrecondition(pair.zero.Rejoin(3, 2)));
  CHECK(pair.zero.Info().kept_epoch() == 0);
  // Both meet anew.
  pair.Form(4);
  pair.CheckStep(4);
  CHECK(pair.zero.runner->epochs_resumed() == 0);
}

TEST_CASE("Ranks that meet anew drop what they have kept", "[shard][executor]") {
  PairRig pair;
  pair.Form(1);
  REQUIRE(pair.zero.Pause(2).ok());
  REQUIRE(pair.one.Pause(2).ok());
  pair.Form(3);
  pair.CheckStep(3);
  for (const ExecutorRig* rig : {&pair.zero, &pair.one}) {
    CHECK(rig->runner->epochs_begun() == 2);
    CHECK(rig->runner->epochs_resumed() == 0);
    CHECK(rig->Info().kept_epoch() == 0);
  }
}

TEST_CASE("What is launched when a whole group is left ends by itself or is aborted",
          "[shard][executor]") {
  const bool ends = GENERATE(true, false);
  INFO("ends " << ends);
  std::atomic<int> looks{0};
  std::atomic<int> launched{0};
  FakeRunnerOptions fake = Keeping();
  fake.launches = 2;
  // Not at once: the executor has to wait for it.
  fake.ready = [&] { return ends && ++looks > 20; };
  fake.on_run = [&](const StepBatch&) {
    ++launched;
    return absl::OkStatus();
  };
  PendingPrefill running;
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  MakePrefill(&running, 1, 1);
  rig.Start(&running);
  while (launched == 0) {
  }
  const absl::Time begin = absl::Now();
  REQUIRE(rig.Pause(2).ok());
  CHECK((rig.Info().kept_epoch() == 1) == ends);
  if (!ends) CHECK(absl::Now() - begin >= kPausePatience);
  (void)running.Wait();
  CHECK_FALSE(rig.stuck);
  REQUIRE(rig.Form(3).ok());
}

TEST_CASE("Nothing is kept of an epoch that is not warm, or that failed", "[shard][executor]") {
  ExecutorRig cold(Keeping());
  cold.Load();
  REQUIRE(cold.Join(1).ok());
  REQUIRE(cold.Pause(2).ok());
  CHECK(cold.Info().kept_epoch() == 0);

  FakeRunnerOptions fake = Keeping();
  fake.on_run = [](const StepBatch&) { return absl::InternalError("a step that fails"); };
  ExecutorRig broken(fake);
  broken.Load();
  REQUIRE(broken.Form(1).ok());
  PendingPrefill step;
  MakePrefill(&step, 1, 1);
  CHECK_FALSE(broken.Run(&step).ok());
  REQUIRE(broken.Pause(2).ok());
  CHECK(broken.Info().kept_epoch() == 0);
  REQUIRE(broken.Form(3).ok());
}

}  // namespace weft::shard

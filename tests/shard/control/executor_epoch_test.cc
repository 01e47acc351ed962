// The shard's state machine between epochs: joining, warming up, leaving in the middle of things,
// fencing, races.

#include "shard/control/executor.h"

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/barrier.h"
#include "tests/common/log_lines.h"
#include "tests/shard/control/executor_rig.h"

namespace weft::shard {

TEST_CASE("LeaveGroup aborts the step in hand and drops every sequence", "[shard][executor]") {
  Gate gate;
  gate.open = true;
  FakeRunnerOptions fake;
  fake.step_duration = absl::Seconds(600);
  fake.on_run = [&](const StepBatch&) { return gate.Pass(); };
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  PendingPrefill running;
  MakePrefill(&running, 1, 1);
  rig.Start(&running);
  gate.AwaitArrived(1);
  PendingDecode prepared, gap;
  MakeDecode(&prepared, 1, 2);
  MakeDecode(&gap, 1, 4);
  rig.Start(&prepared);
  rig.Start(&gap);
  REQUIRE(rig.Leave(1).ok());
  CHECK(absl::IsAborted(running.Wait()));
  CHECK(absl::IsAborted(prepared.Wait()));
  CHECK(absl::IsAborted(gap.Wait()));
  CHECK(rig.Info().state() == v1::SHARD_STATE_READY);
  CHECK(rig.Leave(1).ok());
  PendingDecode late;
  MakeDecode(&late, 1, 3);
  CHECK(absl::IsFailedPrecondition(rig.Run(&late)));
  // Slot 0, block 0 and sequence 5 are free again.
  REQUIRE(rig.Form(2).ok());
  CHECK(rig.runner->epochs_begun() == 2);
  PendingPrefill again;
  MakePrefill(&again, 2, 1);
  rig.Start(&again);
  gate.AwaitArrived(2);
  REQUIRE(rig.Leave(2).ok());
  CHECK(absl::IsAborted(again.Wait()));
  CHECK_FALSE(rig.stuck);
}

TEST_CASE("A device thread that does not come back is reported as stuck", "[shard][executor]") {
  Gate gate;
  FakeRunnerOptions fake;
  fake.on_run = [&](const StepBatch&) { return gate.Pass(); };
  ExecutorOptions options;
  options.leave_timeout = absl::Milliseconds(30);
  ExecutorRig rig(fake, options);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  PendingPrefill running;
  MakePrefill(&running, 1, 1);
  rig.Start(&running);
  gate.AwaitArrived(1);
  PendingLeave leave;
  rig.StartLeave(&leave, 1);
  while (!rig.stuck) {
  }
  CHECK_FALSE(leave.done.HasBeenNotified());
  gate.Open();
  CHECK(leave.Wait().ok());
  CHECK(absl::IsAborted(running.Wait()));
}

TEST_CASE("Lower epochs and other routers are fenced off", "[shard][executor]") {
  ExecutorRig rig;
  rig.Load();
  CHECK(absl::IsInvalidArgument(rig.Join(1, "", 0)));
  CHECK(absl::IsInvalidArgument(rig.Rendezvous(1, 0).status()));
  CHECK(absl::IsInvalidArgument(rig.Leave(1, 0)));
  REQUIRE(rig.Rendezvous(5).ok());
  CHECK(rig.Info().epoch() == 5);
  CHECK(absl::IsFailedPrecondition(rig.Rendezvous(5).status()));
  CHECK(absl::IsFailedPrecondition(rig.Join(4)));
  CHECK(absl::IsPermissionDenied(rig.Join(5, "", 99)));
  REQUIRE(rig.Form(5).ok());
  CHECK(absl::IsFailedPrecondition(rig.Join(5)));
  PendingWarmup other_warmup;
  rig.StartWarmup(&other_warmup, 5, 99);
  CHECK(absl::IsPermissionDenied(other_warmup.Wait()));
  CHECK(absl::IsPermissionDenied(rig.Leave(5, 99)));
  CHECK(absl::IsFailedPrecondition(rig.Leave(4)));
  CHECK(rig.Info().state() == v1::SHARD_STATE_JOINED);
  // A new router takes over with a higher epoch, without asking the old one.
  REQUIRE(rig.Join(6, "", 99).ok());
  CHECK(rig.Info().epoch() == 6);
  CHECK(rig.runner->epochs_begun() == 2);
  CHECK(absl::IsFailedPrecondition(rig.Leave(5)));
  PendingPrefill old;
  MakePrefill(&old, 5, 1);
  CHECK(absl::IsFailedPrecondition(rig.Run(&old)));
  // A leave ahead of its join wins: the join comes too late.
  REQUIRE(rig.Leave(8).ok());
  CHECK(rig.Info().state() == v1::SHARD_STATE_READY);
  CHECK(absl::IsFailedPrecondition(rig.Join(8)));
  CHECK(absl::IsFailedPrecondition(rig.Join(7)));
  CHECK(rig.Join(9).ok());
}

TEST_CASE("Rank and world must be those of the start flags", "[shard][executor]") {
  ExecutorRig rig({}, RankOptions(1, 2));
  rig.Load();
  PendingJoin join;
  join.request.set_epoch(1);
  join.request.set_router_id(kRouter);
  join.request.set_rank(0);
  join.request.set_world(2);
  rig.executor->JoinGroup(join.request, join.Callback());
  CHECK(absl::IsInvalidArgument(join.Wait()));
  ExecutorRig zero({}, RankOptions(0, 2));
  zero.Load();
  v1::RendezvousRequest request;
  v1::RendezvousResponse response;
  request.set_epoch(1);
  request.set_router_id(kRouter);
  request.set_world(3);
  CHECK(absl::IsInvalidArgument(zero.executor->Rendezvous(request, &response)));
}

TEST_CASE("Warmup runs once an epoch, however often it is asked for", "[shard][executor]") {
  Gate gate;
  FakeRunnerOptions fake;
  fake.on_warmup = [&] { return gate.Pass(); };
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Join(1).ok());
  PendingWarmup calls[3];
  rig.StartWarmup(&calls[0], 1);
  gate.AwaitArrived(1);
  rig.StartWarmup(&calls[1], 1);
  gate.Open();
  REQUIRE(calls[0].Wait().ok());
  REQUIRE(calls[1].Wait().ok());
  rig.StartWarmup(&calls[2], 1);
  REQUIRE(calls[2].Wait().ok());
  for (const PendingWarmup& call : calls) CHECK(call.response.kv_blocks(0) == 256);
  CHECK(rig.runner->warmups() == 1);
  REQUIRE(rig.Leave(1).ok());
  REQUIRE(rig.Form(2).ok());
  CHECK(rig.runner->warmups() == 2);
}

TEST_CASE("LeaveGroup during Warmup aborts it", "[shard][executor]") {
  Gate gate;
  FakeRunnerOptions fake;
  fake.on_warmup = [&] { return gate.Pass(); };
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Join(1).ok());
  PendingWarmup warmup;
  rig.StartWarmup(&warmup, 1);
  gate.AwaitArrived(1);
  PendingLeave leave;
  rig.StartLeave(&leave, 1);
  gate.Open();
  CHECK(absl::IsAborted(warmup.Wait()));
  CHECK(leave.Wait().ok());
}

TEST_CASE("A join without its peers ends by itself and by LeaveGroup", "[shard][executor]") {
  ExecutorOptions options = RankOptions(0, 2);
  options.join_timeout = absl::Milliseconds(50);
  ExecutorRig rig({}, options);
  rig.Load();
  const auto token = rig.Rendezvous(1);
  REQUIRE(token.ok());
  const absl::Status status = rig.Join(1, *token);
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(absl::StrContains(status.message(), "rank 1"));
  CHECK(rig.Leave(1).ok());
  CHECK(rig.Info().state() == v1::SHARD_STATE_READY);
  CHECK(rig.runner->epochs_begun() == 0);

  ExecutorRig patient({}, RankOptions(0, 2));
  patient.Load();
  const auto second = patient.Rendezvous(1);
  REQUIRE(second.ok());
  PendingJoin join;
  patient.StartJoin(&join, 1, *second);
  CHECK(patient.Leave(1).ok());
  CHECK(absl::IsAborted(join.Wait()));
  CHECK(absl::IsInvalidArgument(patient.Join(2, "no token at all")));
  CHECK(patient.Info().state() == v1::SHARD_STATE_READY);
}

TEST_CASE("A join that fails as the one before it is not said again", "[shard][executor]") {
  ExecutorRig rig({}, RankOptions(0, 2));
  rig.Load();
  const test::LogLines log;
  for (const Epoch epoch : {1, 2, 3}) CHECK(absl::IsInvalidArgument(rig.Join(epoch, "no token")));
  CHECK(log.Count("could not join") == 1);
  CHECK(absl::IsFailedPrecondition(rig.Join(4, "weft-shm-1 1 4 3 64 /proc/1/fd/3")));
  CHECK(absl::IsInvalidArgument(rig.Join(5, "no token")));
  CHECK(log.Count("could not join") == 3);
}

TEST_CASE("Joins, leaves and steps from many threads leave a shard that works",
          "[shard][executor][race]") {
  const uint32_t seed = GENERATE(1u, 2u, 3u);
  WARN("seed " << seed);
  FakeRunnerOptions fake;
  fake.step_duration = absl::Microseconds(200);
  fake.keeps = true;
  ExecutorRig zero(fake, RankOptions(0, 2));
  ExecutorRig one(fake, RankOptions(1, 2));
  zero.Load();
  one.Load();
  std::atomic<uint64_t> epoch{0};
  absl::Mutex token_mutex;
  std::string token;
  {
    std::vector<Thread> threads;
    for (uint32_t t = 0; t < 6; ++t) {
      threads.emplace_back("race", [&, t] {
        std::mt19937 random(seed * 100 + t);
        ExecutorRig& rig = t % 2 == 0 ? zero : one;
        for (int i = 0; i < 150; ++i) {
          const uint64_t number = epoch.load() + random() % 2;
          switch (random() % 7) {
            case 0: {
              auto made = zero.Rendezvous(++epoch);
              absl::MutexLock lock(&token_mutex);
              if (made.ok()) token = *made;
              break;
            }
            case 1:
            case 2: {
              // Half of the time with a token of its own, else with whoever's came last.
              const uint64_t mine = random() % 2 == 0 ? ++epoch : epoch.load();
              auto made = zero.Rendezvous(mine);
              std::string text;
              {
                absl::MutexLock lock(&token_mutex);
                if (made.ok()) token = *made;
                text = token;
              }
              PendingJoin join[2];
              zero.StartJoin(&join[0], mine, text);
              one.StartJoin(&join[1], mine, text);
              if (random() % 2 == 0) (void)rig.Leave(number);
              // One may have been refused: then the other waits until somebody leaves.
              for (int rank = 0; rank < 2; ++rank) {
                if (!join[rank].done.WaitForNotificationWithTimeout(absl::Milliseconds(5))) {
                  (void)zero.Leave(epoch.load());
                  (void)one.Leave(epoch.load());
                }
                (void)join[rank].Wait();
              }
              break;
            }
            case 3:
              (void)(random() % 2 == 0 ? rig.Leave(number) : rig.Pause(number));
              break;
            case 5:
              (void)rig.Rejoin(++epoch, rig.Info().kept_epoch());
              break;
            case 4:
              (void)rig.Warmup(epoch.load());
              (void)rig.Info();
              break;
            default: {
              PendingPrefill step;
              MakePrefill(&step, epoch.load(), 1 + random() % 3);
              rig.Start(&step);
              // A step may wait for one before it that never comes.
              if (!step.done.WaitForNotificationWithTimeout(absl::Milliseconds(2))) {
                (void)rig.Leave(epoch.load());
                (void)rig.Leave(++epoch);
              }
              (void)step.Wait();
            }
          }
        }
      });
    }
  }
  const uint64_t last = std::max({epoch.load(), zero.Info().epoch(), one.Info().epoch()}) + 1;
  const auto made = zero.Rendezvous(last);
  REQUIRE(made.ok());
  PendingJoin join[2];
  zero.StartJoin(&join[0], last, *made);
  one.StartJoin(&join[1], last, *made);
  REQUIRE(join[0].Wait().ok());
  REQUIRE(join[1].Wait().ok());
  REQUIRE(zero.Warmup(last).ok());
  REQUIRE(one.Warmup(last).ok());
  PendingPrefill step[2];
  for (int rank = 0; rank < 2; ++rank) {
    MakePrefill(&step[rank], last, 1);
    (rank == 0 ? zero : one).Start(&step[rank]);
  }
  REQUIRE(step[0].Wait().ok());
  REQUIRE(step[1].Wait().ok());
  std::vector<TokenId> log = {1, 2, 3};
  CHECK(step[0].response.ids(0) == Expect(&log));
  CHECK_FALSE(zero.stuck);
  CHECK_FALSE(one.stuck);
}

}  // namespace weft::shard

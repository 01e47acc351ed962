// The shard's state machine: order, fencing, leaving in the middle of things, races.

#include "shard/control/executor.h"

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/barrier.h"
#include "common/limits.h"
#include "tests/shard/control/executor_rig.h"

namespace weft::shard {
namespace {

// The token the fake samples after `log`, appended to it.
TokenId Expect(std::vector<TokenId>* log) {
  const TokenId next = FakeModelRunner::NextToken(*log, FakeRunnerOptions{}.vocab_size);
  log->push_back(next);
  return next;
}

ExecutorOptions RankOptions(Rank rank, uint32_t world) {
  ExecutorOptions options;
  options.rank = rank;
  options.world = world;
  return options;
}

// Blocks the device thread until the test lets it go; counts who came.
struct Gate {
  absl::Mutex mutex;
  int arrived = 0;
  bool open = false;

  absl::Status Pass() {
    absl::MutexLock lock(&mutex);
    ++arrived;
    mutex.Await(absl::Condition(&open));
    return absl::OkStatus();
  }
  void AwaitArrived(int count) {
    absl::MutexLock lock(&mutex);
    const auto here = [&] { return arrived >= count; };
    mutex.Await(absl::Condition(&here));
  }
  void Open() {
    absl::MutexLock lock(&mutex);
    open = true;
  }
};

}  // namespace

TEST_CASE("A shard goes from LOADING to READY to JOINED and back", "[shard][executor]") {
  ExecutorRig rig;
  rig.progress.bytes_total = 1000;
  rig.progress.bytes_done = 400;
  CHECK(rig.Info().state() == v1::SHARD_STATE_LOADING);
  CHECK(rig.Info().load().bytes_done() == 400);
  CHECK(absl::IsFailedPrecondition(rig.Join(1)));
  CHECK(absl::IsFailedPrecondition(rig.Rendezvous(1).status()));
  CHECK(absl::IsFailedPrecondition(rig.Warmup(1)));
  rig.Load();
  CHECK(rig.Info().state() == v1::SHARD_STATE_READY);
  CHECK(rig.Info().epoch() == 0);
  CHECK(rig.Info().vocab_size() == 1000);
  CHECK(rig.Info().isa() == "fake");
  REQUIRE(rig.Join(4).ok());
  CHECK(rig.Info().state() == v1::SHARD_STATE_JOINED);
  CHECK(rig.Info().epoch() == 4);
  CHECK(rig.Info().heartbeat_age_us() < 60'000'000);
  CHECK(rig.Info().cpu_time_us() > 0);
  REQUIRE(rig.Leave(4).ok());
  CHECK(rig.Info().state() == v1::SHARD_STATE_READY);
  CHECK(rig.Info().epoch() == 4);
  rig.executor->SetFailed(absl::InternalError("model.gguf: broken"));
  CHECK(rig.Info().state() == v1::SHARD_STATE_FAILED);
  CHECK(rig.Info().error() == "model.gguf: broken");
}

TEST_CASE("Steps of two ranks give the log's tokens, ids on rank 0 only", "[shard][executor]") {
  ExecutorRig zero({}, RankOptions(0, 2));
  ExecutorRig one({}, RankOptions(1, 2));
  zero.Load();
  one.Load();
  const auto token = zero.Rendezvous(1);
  REQUIRE(token.ok());
  CHECK(absl::IsFailedPrecondition(one.Rendezvous(1).status()));
  PendingJoin join_zero, join_one;
  zero.StartJoin(&join_zero, 1, *token);
  one.StartJoin(&join_one, 1, *token);
  REQUIRE(join_zero.Wait().ok());
  REQUIRE(join_one.Wait().ok());
  PendingWarmup warm;
  zero.StartWarmup(&warm, 1);
  REQUIRE(warm.Wait().ok());
  CHECK(warm.response.kv_blocks(0) == 256);
  REQUIRE(warm.response.costs_size() == 2);
  REQUIRE(one.Warmup(1).ok());

  std::vector<TokenId> log = {1, 2, 3};
  PendingPrefill prefill[2];
  for (int rank = 0; rank < 2; ++rank) {
    MakePrefill(&prefill[rank], 1, 1);
    (rank == 0 ? zero : one).Start(&prefill[rank]);
  }
  REQUIRE(prefill[0].Wait().ok());
  REQUIRE(prefill[1].Wait().ok());
  const v1::StepResponse& response = prefill[0].response;
  REQUIRE(response.ids_size() == 1);
  CHECK(response.ids(0) == Expect(&log));
  CHECK(response.slots(0) == 0);
  CHECK(response.epoch() == 1);
  CHECK(response.step() == 1);
  CHECK(response.weight_passes() == 1);
  CHECK(prefill[1].response.ids_size() == 0);
  CHECK(prefill[1].response.ids_hash() == response.ids_hash());
  CHECK(response.ids_hash() != 0);
  for (uint64_t step = 2; step < 12; ++step) {
    PendingDecode decode[2];
    for (int rank = 0; rank < 2; ++rank) {
      MakeDecode(&decode[rank], 1, step);
      (rank == 0 ? zero : one).Start(&decode[rank]);
    }
    REQUIRE(decode[0].Wait().ok());
    REQUIRE(decode[1].Wait().ok());
    CHECK(decode[0].response.ids(0) == Expect(&log));
    CHECK(decode[0].response.ids_hash() == decode[1].response.ids_hash());
  }
  PendingLeave leave_zero, leave_one;
  zero.StartLeave(&leave_zero, 1);
  one.StartLeave(&leave_one, 1);
  CHECK(leave_zero.Wait().ok());
  CHECK(leave_one.Wait().ok());
}

TEST_CASE("The hash of sampled ids is FNV-1a over little-endian ids", "[shard][executor]") {
  FakeRunnerOptions fake;
  fake.vocab_size = 1;  // every sampled id is 0
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  PendingPrefill prefill;
  SetHeader(prefill.request.mutable_header(), 1, 1);
  AddBlocks(prefill.request.mutable_header(), 0, {0});
  AddFirstChunk(&prefill.request, 0, 5, {0}, true, 1);
  REQUIRE(rig.Run(&prefill).ok());
  // FNV-1a of four zero bytes.
  CHECK(prefill.response.ids_hash() == 0x4b95f515u);
}

TEST_CASE("Steps run in order, each once, whatever order they come in", "[shard][executor]") {
  ExecutorRig rig;
  rig.Load();
  REQUIRE(rig.Form(3).ok());
  std::vector<TokenId> log = {1, 2, 3};
  PendingDecode second;
  MakeDecode(&second, 3, 2);
  rig.Start(&second);
  PendingDecode twice;
  MakeDecode(&twice, 3, 2);
  CHECK(absl::IsAlreadyExists(rig.Run(&twice)));
  CHECK_FALSE(second.done.HasBeenNotified());
  PendingPrefill first;
  MakePrefill(&first, 3, 1);
  REQUIRE(rig.Run(&first).ok());
  REQUIRE(second.Wait().ok());
  CHECK(first.response.ids(0) == Expect(&log));
  CHECK(second.response.ids(0) == Expect(&log));
  PendingDecode late;
  MakeDecode(&late, 3, 1);
  CHECK(absl::IsAlreadyExists(rig.Run(&late)));
  PendingDecode zero;
  MakeDecode(&zero, 3, 0);
  CHECK(absl::IsInvalidArgument(rig.Run(&zero)));
  for (const uint64_t far : {uint64_t{3} + StepOrder::kWindow, ~uint64_t{0}}) {
    PendingDecode ahead;
    MakeDecode(&ahead, 3, far);
    CHECK(absl::IsFailedPrecondition(rig.Run(&ahead)));
  }
  for (const uint64_t epoch : {2, 4}) {
    PendingDecode other;
    MakeDecode(&other, epoch, 3);
    CHECK(absl::IsFailedPrecondition(rig.Run(&other)));
  }
  // None of the refused calls did any harm.
  PendingDecode third;
  MakeDecode(&third, 3, 3);
  REQUIRE(rig.Run(&third).ok());
  CHECK(third.response.ids(0) == Expect(&log));
}

TEST_CASE("Steps need an epoch that is warm", "[shard][executor]") {
  ExecutorRig rig;
  rig.Load();
  PendingPrefill before;
  MakePrefill(&before, 1, 1);
  CHECK(absl::IsFailedPrecondition(rig.Run(&before)));
  REQUIRE(rig.Join(1).ok());
  PendingPrefill cold;
  MakePrefill(&cold, 1, 1);
  CHECK(absl::IsFailedPrecondition(rig.Run(&cold)));
  REQUIRE(rig.Warmup(1).ok());
  PendingPrefill warm;
  MakePrefill(&warm, 1, 1);
  CHECK(rig.Run(&warm).ok());
}

TEST_CASE("An invalid step ends the epoch but not the step before it", "[shard][executor]") {
  Gate gate;
  FakeRunnerOptions fake;
  fake.on_run = [&](const StepBatch&) { return gate.Pass(); };
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  PendingPrefill good;
  MakePrefill(&good, 1, 1);
  rig.Start(&good);
  gate.AwaitArrived(1);
  PendingDecode bad;
  MakeDecode(&bad, 1, 2);
  bad.request.add_skip_slots(3);
  CHECK(absl::IsInvalidArgument(rig.Run(&bad)));
  CHECK(absl::StrContains(bad.status.message(), "skip_slots[0]"));
  PendingDecode after;
  MakeDecode(&after, 1, 3);
  CHECK(absl::IsFailedPrecondition(rig.Run(&after)));
  CHECK(absl::StrContains(after.status.message(), "epoch 1 failed at step 2"));
  gate.Open();
  CHECK(good.Wait().ok());
  REQUIRE(rig.Leave(1).ok());
  REQUIRE(rig.Form(2).ok());
  PendingPrefill again;
  MakePrefill(&again, 2, 1);
  CHECK(rig.Run(&again).ok());
}

TEST_CASE("A failing device fails its step and all later ones", "[shard][executor]") {
  Gate gate;
  FakeRunnerOptions fake;
  fake.on_run = [&](const StepBatch&) {
    (void)gate.Pass();
    return absl::InternalError("device lost");
  };
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  PendingPrefill first;
  MakePrefill(&first, 1, 1);
  rig.Start(&first);
  PendingDecode second, third;
  MakeDecode(&second, 1, 2);
  MakeDecode(&third, 1, 3);
  rig.Start(&second);
  rig.Start(&third);
  gate.AwaitArrived(1);
  gate.Open();
  CHECK(absl::IsInternal(first.Wait()));
  CHECK(absl::IsFailedPrecondition(second.Wait()));
  CHECK(absl::IsFailedPrecondition(third.Wait()));
  CHECK(absl::StrContains(third.status.message(), "device lost"));
  CHECK(rig.Leave(1).ok());
}

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

TEST_CASE("Joins, leaves and steps from many threads leave a shard that works",
          "[shard][executor][race]") {
  const uint32_t seed = GENERATE(1u, 2u, 3u);
  WARN("seed " << seed);
  FakeRunnerOptions fake;
  fake.step_duration = absl::Microseconds(200);
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
          switch (random() % 6) {
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
              (void)rig.Leave(number);
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

TEST_CASE("Shutdown lets the step in hand finish and refuses the rest", "[shard][executor]") {
  Gate gate;
  FakeRunnerOptions fake;
  fake.on_run = [&](const StepBatch&) { return gate.Pass(); };
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  PendingPrefill running;
  MakePrefill(&running, 1, 1);
  rig.Start(&running);
  gate.AwaitArrived(1);
  PendingDecode queued;
  MakeDecode(&queued, 1, 2);
  rig.Start(&queued);
  Thread shutdown("shutdown", [&] { rig.executor->Shutdown(absl::Seconds(60)); });
  CHECK(absl::IsUnavailable(queued.Wait()));
  gate.Open();
  CHECK(running.Wait().ok());
  shutdown.Join();
  CHECK(absl::IsUnavailable(rig.Join(2)));
}

TEST_CASE("The heartbeat's age is the time since the last beat", "[shard][executor]") {
  ManualClock clock(1000);
  Heartbeat heartbeat(clock);
  clock.AdvanceUs(500);
  CHECK(heartbeat.age_us() == 500);
  heartbeat.Beat();
  CHECK(heartbeat.age_us() == 0);
}

}  // namespace weft::shard

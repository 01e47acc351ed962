// The shard's state machine under steps: their order, what they answer, what fails them.

#include "shard/control/executor.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/limits.h"
#include "tests/shard/control/executor_rig.h"

namespace weft::shard {

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

#include "shard/control/membership.h"

#include <catch2/catch.hpp>
#include <limits>

#include "common/limits.h"
#include "tests/shard/control/executor_rig.h"

namespace weft::shard {
namespace {

constexpr uint64_t kOther = 99;

struct PendingHold : Pending<v1::HoldRequest, v1::HoldResponse> {
  uint64_t number = 0;
};

void StartHold(ExecutorRig& rig, PendingHold* call, uint64_t router, uint64_t launcher = 0,
               uint64_t generation = 0) {
  call->request.set_router_id(router);
  call->request.set_launcher_id(launcher);
  call->request.set_generation(generation);
  call->number = rig.executor->Hold(call->request, call->Callback());
}

TEST_CASE("An epoch is refused when it jumps further than a group can be ahead",
          "[shard][membership]") {
  GroupMembership membership;
  constexpr Epoch kMax = std::numeric_limits<Epoch>::max();
  for (const Epoch bad : {kMax, kMax - 1, kFirstEpochMax + 1}) {
    CHECK(absl::IsInvalidArgument(membership.CheckRendezvous(bad, 7)));
    CHECK(absl::IsInvalidArgument(membership.CheckJoin(bad, 7)));
    CHECK(absl::IsInvalidArgument(membership.CheckLeave(bad, 7, 0, 0)));
  }
  // A shard that was just started joins a group that has had many epochs.
  CHECK(membership.CheckRendezvous(kFirstEpochMax, 7).ok());
  membership.Raise(5, 7);
  CHECK(membership.CheckRendezvous(5 + kEpochJumpMax, 7).ok());
  CHECK(absl::IsInvalidArgument(membership.CheckRendezvous(6 + kEpochJumpMax, 7)));
  CHECK(absl::IsInvalidArgument(membership.CheckLeave(6 + kEpochJumpMax, 7, 5, 7)));
}

TEST_CASE("Who asks is checked before what is asked for", "[shard][membership]") {
  GroupMembership membership;
  membership.Hold({7, 0, 0});
  membership.Raise(5, 7);
  constexpr Epoch kMax = std::numeric_limits<Epoch>::max();
  for (const Epoch epoch : {Epoch{1}, Epoch{6}, Epoch{105}, kMax}) {
    CHECK(absl::IsAlreadyExists(membership.CheckRendezvous(epoch, kOther)));
    CHECK(absl::IsAlreadyExists(membership.CheckJoin(epoch, kOther)));
    CHECK(absl::IsAlreadyExists(membership.CheckLeave(epoch, kOther, 5, 7)));
  }
  CHECK(membership.CheckJoin(6, 7).ok());
  membership.Release();
  CHECK(membership.CheckJoin(6, kOther).ok());
}

TEST_CASE("A claim yields to a later start by the same launcher and to nobody else",
          "[shard][membership]") {
  GroupMembership membership;
  membership.Hold({7, 3, 2});
  CHECK(membership.CheckHold({7, 3, 2}).ok());
  CHECK(absl::IsAlreadyExists(membership.CheckHold({8, 0, 0})));
  CHECK(absl::IsAlreadyExists(membership.CheckHold({8, 4, 9})));
  CHECK(absl::IsFailedPrecondition(membership.CheckHold({8, 3, 1})));
  CHECK(absl::IsFailedPrecondition(membership.CheckHold({8, 3, 2})));
  CHECK(membership.CheckHold({8, 3, 3}).ok());
  CHECK(absl::IsInvalidArgument(membership.CheckHold({0, 3, 3})));
}

TEST_CASE("Calls of a stranger leave a live group as it is", "[shard][membership]") {
  ExecutorRig rig;
  rig.Load();
  PendingHold mine;
  StartHold(rig, &mine, kRouter);
  CHECK(rig.Info().holder_router_id() == kRouter);
  REQUIRE(rig.Rendezvous(5).ok());
  REQUIRE(rig.Form(5).ok());
  CHECK(absl::IsAlreadyExists(rig.Join(105, "garbage", kOther)));
  CHECK(absl::IsAlreadyExists(rig.Rendezvous(105, kOther).status()));
  CHECK(absl::IsAlreadyExists(rig.Leave(105, kOther)));
  CHECK(absl::IsInvalidArgument(rig.Rendezvous(std::numeric_limits<Epoch>::max()).status()));
  PendingHold other;
  StartHold(rig, &other, kOther);
  CHECK(absl::IsAlreadyExists(other.Wait()));
  CHECK(rig.Info().state() == v1::SHARD_STATE_JOINED);
  CHECK(rig.Info().epoch() == 5);
  PendingPrefill step;
  MakePrefill(&step, 5, 1);
  CHECK(rig.Run(&step).ok());
  // The holder itself goes on to the next epoch.
  REQUIRE(rig.Rendezvous(6).ok());
  CHECK(rig.Join(6).ok());
  rig.executor->EndHold(mine.number);
  CHECK(absl::IsCancelled(mine.Wait()));
}

TEST_CASE("A claim ends with its call, and the next router takes over", "[shard][membership]") {
  ExecutorRig rig;
  rig.Load();
  PendingHold first;
  StartHold(rig, &first, kRouter);
  REQUIRE(rig.Form(1).ok());
  rig.executor->EndHold(first.number);
  CHECK(absl::IsCancelled(first.Wait()));
  CHECK(rig.Info().holder_router_id() == 0);
  PendingHold second;
  StartHold(rig, &second, kOther);
  CHECK(rig.Info().holder_router_id() == kOther);
  CHECK(rig.Join(2, "", kOther).ok());
  rig.executor->EndHold(first.number);  // what ended long ago ends nothing
  CHECK(rig.Info().holder_router_id() == kOther);
  PendingHold release;
  release.request.set_release(true);
  StartHold(rig, &release, kOther);
  CHECK(release.Wait().ok());
  CHECK(absl::IsCancelled(second.Wait()));
  CHECK(rig.Info().holder_router_id() == 0);
}

TEST_CASE("A supervised restart takes the claim over and fences the start before it",
          "[shard][membership]") {
  ExecutorRig rig;
  rig.Load();
  PendingHold first;
  StartHold(rig, &first, kRouter, /*launcher=*/3, /*generation=*/1);
  PendingHold second;
  StartHold(rig, &second, kOther, /*launcher=*/3, /*generation=*/2);
  CHECK(absl::IsFailedPrecondition(first.Wait()));
  CHECK(rig.Info().holder_router_id() == kOther);
  PendingHold again;
  StartHold(rig, &again, kRouter, /*launcher=*/3, /*generation=*/1);
  CHECK(absl::IsFailedPrecondition(again.Wait()));
  rig.executor->Shutdown(absl::ZeroDuration());
  CHECK(absl::IsUnavailable(second.Wait()));
}

}  // namespace
}  // namespace weft::shard

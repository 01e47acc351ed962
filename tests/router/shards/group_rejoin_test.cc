// A router that finds its shards in the epoch of one that is gone, and how it leaves them itself:
// what it asks them to keep, and what it goes on with.

#include <catch2/catch.hpp>

#include "tests/router/shards/group_rig.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

constexpr Epoch kTheirs = 5;

template <typename Message>
Message Sent(const GroupRig& rig, Rank rank, ShardCall call) {
  Message message;
  REQUIRE(message.ParseFromString(*rig.Last(rank, call).request));
  return message;
}

// The shards are in another router's epoch, and leave it as they are asked to.
void LeaveTheirs(GroupRig* rig) {
  for (wire::InfoResponse& info : rig->infos) {
    info.set_state(wire::SHARD_STATE_JOINED);
    info.set_epoch(kTheirs);
  }
  rig->Grant();
  for (int i = 0; i < 5 && rig->Count(0, ShardCall::kLeaveGroup) == 0; ++i) rig->Poll();
  for (Rank rank = 0; rank < rig->clients.size(); ++rank) {
    const auto leave = Sent<wire::LeaveGroupRequest>(*rig, rank, ShardCall::kLeaveGroup);
    CHECK(leave.epoch() == kTheirs + 1);
    CHECK(leave.keep());
    rig->infos[rank].set_epoch(kTheirs + 1);
  }
  rig->Leave();
}

void AwaitJoining(GroupRig* rig) {
  for (int i = 0; i < 5 && rig->group->state() != GroupState::kJoining; ++i) rig->Poll();
  REQUIRE(rig->group->state() == GroupState::kJoining);
}

}  // namespace

TEST_CASE("A new router goes on with the communicator that every shard has kept",
          "[router][shards]") {
  GroupRig rig(2);
  LeaveTheirs(&rig);
  for (wire::InfoResponse& info : rig.infos) info.set_kept_epoch(kTheirs);
  AwaitJoining(&rig);
  CHECK(rig.Count(0, ShardCall::kRendezvous) == 0);
  for (Rank rank = 0; rank < 2; ++rank) {
    const auto join = Sent<wire::JoinGroupRequest>(rig, rank, ShardCall::kJoinGroup);
    CHECK(join.rank() == rank);
    CHECK(join.epoch() == rig.group->epoch());
    CHECK(join.kept_epoch() == kTheirs);
    CHECK(join.token().empty());
    rig.Answer(rank, ShardCall::kJoinGroup, absl::OkStatus());
  }
  rig.Warm({10});
  CHECK(rig.group->state() == GroupState::kServing);
}

TEST_CASE("Shards meet anew where one of them has kept nothing, or another epoch's",
          "[router][shards]") {
  const Epoch of_one = GENERATE(Epoch{0}, kTheirs - 1);
  GroupRig rig(2);
  LeaveTheirs(&rig);
  rig.infos[0].set_kept_epoch(kTheirs);
  rig.infos[1].set_kept_epoch(of_one);
  AwaitJoining(&rig);
  CHECK(rig.Count(0, ShardCall::kRendezvous) == 1);
  CHECK(rig.Count(0, ShardCall::kJoinGroup) == 0);
}

TEST_CASE("A shard that cannot go on with what it kept is met anew", "[router][shards]") {
  GroupRig rig(2);
  LeaveTheirs(&rig);
  for (wire::InfoResponse& info : rig.infos) info.set_kept_epoch(kTheirs);
  AwaitJoining(&rig);
  rig.Answer(1, ShardCall::kJoinGroup, absl::FailedPreconditionError("kept_epoch: has not"));
  CHECK(rig.group->state() != GroupState::kJoining);
  // The attempt takes what was kept, on every rank that it reached.
  for (wire::InfoResponse& info : rig.infos) info.set_kept_epoch(0);
  rig.Leave();
  AwaitJoining(&rig);
  CHECK(rig.Count(0, ShardCall::kRendezvous) == 1);
}

TEST_CASE("A router asks to keep what it leaves whole, and nothing after a loss",
          "[router][shards]") {
  GroupRig whole(2);
  whole.Form();
  whole.group->Leave(whole.now_us);
  CHECK(Sent<wire::LeaveGroupRequest>(whole, 0, ShardCall::kLeaveGroup).keep());
  CHECK(Sent<wire::LeaveGroupRequest>(whole, 1, ShardCall::kLeaveGroup).keep());

  GroupRig lost(2);
  lost.Form();
  lost.group->OnShardDied({1, 101}, lost.now_us);
  CHECK(lost.lost == 1);
  CHECK_FALSE(Sent<wire::LeaveGroupRequest>(lost, 0, ShardCall::kLeaveGroup).keep());
  // Still in that epoch: its end was missed.
  lost.Replace(1, 201, 0);
  lost.infos[0].set_state(wire::SHARD_STATE_JOINED);
  const size_t before = lost.Count(0, ShardCall::kLeaveGroup);
  for (int i = 0; i < 5 && lost.Count(0, ShardCall::kLeaveGroup) == before; ++i) lost.Poll();
  REQUIRE(lost.Count(0, ShardCall::kLeaveGroup) > before);
  CHECK_FALSE(Sent<wire::LeaveGroupRequest>(lost, 0, ShardCall::kLeaveGroup).keep());
}

}  // namespace weft::router

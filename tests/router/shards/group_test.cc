// The shard group's state machine: how groups form, who holds the shards, and what restarts count.

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/router/shards/group_rig.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

TEST_CASE("A group forms once all its shards are ready and held", "[router][shards]") {
  GroupRig rig(2);
  rig.Poll();
  rig.Poll();
  // Rank 0 first, so that of two routers one gets all.
  CHECK(rig.Count(0, ShardCall::kHold) == 1);
  CHECK(rig.Count(1, ShardCall::kHold) == 0);
  rig.Poll();
  CHECK(rig.Count(0, ShardCall::kRendezvous) == 0);
  rig.infos[0].set_holder_router_id(kGroupRouterId);
  rig.Poll();
  CHECK(rig.Count(1, ShardCall::kHold) == 1);
  CHECK(rig.Count(0, ShardCall::kRendezvous) == 0);
  rig.Form();
  CHECK(rig.formed == 1);
  CHECK(rig.Count(0, ShardCall::kHold) == 1);
}

TEST_CASE("Warmup answers the blocks of one pool for each KV group", "[router][shards]") {
  struct Case {
    std::vector<uint32_t> kv_blocks;
    std::string why;
  };
  const std::vector<Case> cases = {
      {{10, 10}, ""},
      {{10, 9},
       "rank 0, Warmup: expected one pool for all KV groups, found 10 blocks for group 0 and 9 for "
       "group 1"},
      {{10}, "rank 0, Warmup: expected a number of blocks for each of 2 KV groups, found 1"},
      {{0, 0}, "rank 0, Warmup: the KV pool has no block"},
  };
  for (const Case& test : cases) {
    INFO(test.why);
    GroupRig rig(1);
    wire::KvGroup* const second = rig.infos[0].add_kv_groups();
    second->set_block_tokens(16);
    second->set_window_tokens(20);
    rig.Join();
    rig.Warm(test.kv_blocks);
    CHECK(rig.formed == (test.why.empty() ? 1 : 0));
    CHECK(rig.group->detail() == test.why);
  }
}

TEST_CASE("Shards that come back as another model get no epoch until they are right again",
          "[router][shards]") {
  const auto set_all = [](GroupRig& rig, uint64_t hash) {
    for (wire::InfoResponse& info : rig.infos) info.set_spec_hash(hash);
  };
  struct Case {
    std::function<void(GroupRig&)> change;
    std::function<void(GroupRig&)> repair;
    std::string why;
  };
  const std::vector<Case> cases = {
      {[&](GroupRig& rig) { set_all(rig, 5); }, [&](GroupRig& rig) { set_all(rig, 0); },
       "the model's settings"},
      // The ranks agree on less than the scheduler was made for.
      {[](GroupRig& rig) { rig.infos[1].set_running_max(7); },
       [](GroupRig& rig) { rig.infos[1].set_running_max(9); }, "running_max: expected 8, found 7"},
      {[](GroupRig& rig) {
         for (wire::InfoResponse& info : rig.infos) info.set_step_tokens_max(63);
       },
       [](GroupRig& rig) {
         for (wire::InfoResponse& info : rig.infos) info.set_step_tokens_max(65);
       },
       "step_tokens_max: expected 64, found 63"},
      // Before they meet, where the ranks would say it in floats.
      {[](GroupRig& rig) { rig.infos[1].set_step_tokens_max(65); },
       [](GroupRig& rig) { rig.infos[1].set_step_tokens_max(64); },
       "rank 1 differs from rank 0: step tokens 65 instead of 64"},
  };
  for (const Case& test : cases) {
    INFO(test.why);
    GroupRig rig(2);
    rig.Form();
    rig.group->OnShardDied({1, 101}, rig.now_us);
    rig.Replace(1, 201, 0);
    test.change(rig);
    for (int i = 0; i < 10; ++i) rig.Poll();
    CHECK(rig.Count(0, ShardCall::kRendezvous) == 1);
    CHECK(rig.group->state() == GroupState::kRecovering);
    CHECK(rig.fatal.ok());
    INFO(rig.group->detail());
    CHECK(absl::StrContains(rig.group->detail(), test.why));
    test.repair(rig);
    rig.Form();
    CHECK(rig.formed == 2);
  }
}

TEST_CASE("A shard that is missing has loaded nothing", "[router][shards]") {
  GroupRig rig(2);
  const auto answer = [&rig](Rank rank, uint64_t done) {
    wire::InfoResponse info = rig.infos[rank];
    info.set_state(wire::SHARD_STATE_LOADING);
    info.mutable_load()->set_bytes_done(done);
    info.mutable_load()->set_bytes_total(1000);
    rig.Answer(rank, ShardCall::kInfo, absl::OkStatus(), info.SerializeAsString());
  };
  rig.group->OnTimer(rig.now_us);
  CHECK(rig.group->percent() == 0);
  answer(0, 1000);
  CHECK(rig.group->percent() == 50);
}

TEST_CASE("Shards that do not fit end a launcher's router, and have another one wait",
          "[router][shards]") {
  for (const bool supervised : {true, false}) {
    GroupRig rig(2, 0, supervised);
    rig.infos[1].set_rank(0);
    rig.Grant();
    for (int i = 0; i < 10; ++i) rig.Poll();
    CHECK(rig.Count(0, ShardCall::kRendezvous) == 0);
    CHECK(absl::IsInvalidArgument(rig.fatal) == supervised);
    CHECK(absl::StrContains(rig.group->detail(), "shard 1: rank: expected 1, found 0"));
    if (supervised) continue;
    // Somebody has started it again with the right flag.
    rig.infos[1].set_rank(1);
    rig.Form();
    CHECK(rig.formed == 1);
  }
}

TEST_CASE("A shard that cannot start is waited for with its own words", "[router][shards]") {
  GroupRig rig(2);
  rig.Form();
  rig.group->OnShardDied({1, 101}, rig.now_us);
  rig.group->OnShardDied({1, 201, "--model: x does not exist; give one"}, rig.now_us);
  rig.group->OnTimer(rig.now_us += 200'000);
  rig.Answer(1, ShardCall::kInfo, absl::DeadlineExceededError("no connection in time"));
  CHECK(rig.group->detail() == "rank 1: --model: x does not exist; give one");
  // The next one could.
  rig.group->OnShardDied({1, 301}, rig.now_us);
  rig.group->OnTimer(rig.now_us += 200'000);
  rig.Answer(1, ShardCall::kInfo, absl::DeadlineExceededError("no connection in time"));
  CHECK(rig.group->detail() == "rank 1: no connection in time");
}

TEST_CASE("A router that is refused a shard says so, waits and asks again", "[router][shards]") {
  GroupRig rig(1);
  rig.infos[0].set_state(wire::SHARD_STATE_JOINED);
  rig.infos[0].set_epoch(5);
  rig.infos[0].set_holder_router_id(99);
  rig.Poll();
  rig.Answer(0, ShardCall::kHold, absl::AlreadyExistsError("held"));
  CHECK(absl::StrContains(rig.group->detail(), "another router holds the shards"));
  for (int i = 0; i < 20; ++i) rig.Poll();
  CHECK(rig.Count(0, ShardCall::kHold) >= 2);
  // The other router's epoch is not ended.
  CHECK(rig.Count(0, ShardCall::kLeaveGroup) == 0);
  CHECK(rig.Count(0, ShardCall::kRendezvous) == 0);
  CHECK(rig.fatal.ok());
  // It ends, and its shard is still in the epoch.
  rig.Grant();
  for (int i = 0; i < 10; ++i) rig.Poll();
  CHECK(rig.Count(0, ShardCall::kLeaveGroup) == 1);
}

TEST_CASE("A router that has not served gives up what it holds when it is refused the rest",
          "[router][shards]") {
  GroupRig rig(2);
  rig.infos[0].set_holder_router_id(kGroupRouterId);
  rig.infos[1].set_holder_router_id(99);
  for (int i = 0; i < 4; ++i) rig.Poll();
  REQUIRE(rig.Count(1, ShardCall::kHold) == 1);
  rig.Answer(1, ShardCall::kHold, absl::AlreadyExistsError("held"));
  wire::HoldRequest last;
  REQUIRE(last.ParseFromString(*rig.clients[0]->sent.back().request));
  CHECK(last.release());
}

TEST_CASE("A shard that cannot be reached is not asked again and again", "[router][shards]") {
  GroupRig rig(2);
  rig.infos[0].set_holder_router_id(kGroupRouterId);
  // In one moment: rank 0 answers whatever it is asked, rank 1 is not there.
  const std::string info = rig.infos[0].SerializeAsString();
  for (int i = 0; i < 100; ++i) {
    const size_t infos = rig.Count(0, ShardCall::kInfo);
    const size_t holds = rig.Count(1, ShardCall::kHold);
    rig.group->OnTimer(rig.now_us);
    if (rig.Count(0, ShardCall::kInfo) > infos || i == 0) {
      rig.Answer(0, ShardCall::kInfo, absl::OkStatus(), info);
    }
    if (rig.Count(1, ShardCall::kHold) > holds) {
      rig.Answer(1, ShardCall::kHold, absl::UnavailableError("no connection"));
    }
  }
  CHECK(rig.Count(1, ShardCall::kHold) == 1);
  CHECK(rig.Count(0, ShardCall::kInfo) < 5);
  // It is back, held by nobody.
  rig.now_us += 1'000;
  rig.Answer(1, ShardCall::kInfo, absl::OkStatus(), rig.infos[1].SerializeAsString());
  CHECK(rig.Count(1, ShardCall::kHold) == 2);
}

TEST_CASE("A router whose shards a later start took over ends", "[router][shards]") {
  GroupRig rig(1);
  rig.Form();
  rig.Answer(0, ShardCall::kHold, absl::FailedPreconditionError("a later start"));
  CHECK(absl::IsFailedPrecondition(rig.fatal));
}

TEST_CASE("A broken channel is connected again while the process behind it is there",
          "[router][shards]") {
  GroupRig rig(2);
  rig.cpu_us = 5;
  rig.Form();
  rig.clients[1]->connected = false;
  rig.group->OnTimer(rig.now_us);
  CHECK(rig.lost == 1);
  CHECK(rig.restarted.empty());
  CHECK(rig.group->state() == GroupState::kRecovering);
}

TEST_CASE("A shard whose process is gone with its channel is restarted", "[router][shards]") {
  GroupRig rig(2);
  rig.Form();
  rig.clients[1]->connected = false;
  rig.group->OnTimer(rig.now_us);
  CHECK(rig.lost == 1);
  CHECK(rig.restarted == std::vector<Rank>{1});
}

// -- Counting restarts ---------------------------------------------------------------------------

TEST_CASE("A restart that the supervisor knew first counts once", "[router][shards]") {
  GroupRig rig(2);
  const int before = rig.Restarts();
  rig.Form();
  SECTION("in an epoch") { rig.cpu_us.reset(); }
  // As of a process that has ended and is not waited for yet.
  SECTION("in an epoch, while the process can still be read") { rig.cpu_us = 5; }
  SECTION("after its channel broke") {
    rig.cpu_us = 5;
    rig.clients[1]->connected = false;
    rig.group->OnTimer(rig.now_us);
    REQUIRE(rig.group->state() == GroupState::kRecovering);
  }
  rig.group->OnShardDied({1, 101}, rig.now_us);
  CHECK(rig.group->state() == GroupState::kRecovering);
  CHECK(rig.Restarts() == before + 1);
  CHECK(rig.restarted.empty());
  rig.Replace(1, 201, 0);
  rig.Form();
  CHECK(rig.Restarts() == before + 1);
  // The next one of the same rank is another.
  rig.group->OnShardDied({1, 201}, rig.now_us);
  CHECK(rig.Restarts() == before + 2);
}

TEST_CASE("A restart that the router asked for counts once", "[router][shards]") {
  GroupRig rig(2);
  const int before = rig.Restarts();
  rig.Form();
  rig.clients[1]->connected = false;
  rig.group->OnTimer(rig.now_us);
  REQUIRE(rig.restarted == std::vector<Rank>{1});
  rig.group->OnShardDied({1, 101}, rig.now_us);
  rig.Replace(1, 201, 0);
  rig.Form();
  // The supervisor's word may come late.
  rig.group->OnShardDied({1, 101}, rig.now_us);
  CHECK(rig.group->state() == GroupState::kServing);
  CHECK(rig.Restarts() == before + 1);
}

TEST_CASE("A restart that nobody spoke of counts when the new process answers",
          "[router][shards]") {
  GroupRig rig(2);
  const int before = rig.Restarts();
  SECTION("in an epoch") {
    rig.Form();
    rig.infos[1].set_pid(201);
    rig.Poll();
    for (int i = 0; i < 5 && rig.lost == 0; ++i) rig.Poll();
    REQUIRE(rig.lost == 1);
    CHECK(rig.Restarts() == before + 1);
    rig.Replace(1, 201, 0);
  }
  SECTION("before one, as in containers with the same pid") {
    rig.Poll();
    rig.Poll();
    rig.Replace(1, 101, 7);
  }
  rig.Form();
  CHECK(rig.Restarts() == before + 1);
}

TEST_CASE("A shard that died before it answered counts once", "[router][shards]") {
  GroupRig rig(1);
  const int before = rig.Restarts();
  rig.group->OnShardDied({0, 90}, rig.now_us);
  rig.group->OnShardDied({0, 90}, rig.now_us);
  CHECK(rig.Restarts() == before + 1);
  rig.Form();
  CHECK(rig.Restarts() == before + 1);
}

}  // namespace
}  // namespace weft::router

// The shard group's state machine on a clock that the test moves, with shards that the test answers
// for.

#include "router/shards/group.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

constexpr uint64_t kRouterId = 7;

// One rank as the test plays it.
class FakeClient : public ShardClient {
 public:
  struct Sent {
    ShardCall call;
    SharedBytes request;
    ShardCallTag tag;
  };

  void Call(ShardCall call, const SharedBytes& request, ShardCallTag tag, int64_t, bool) override {
    sent.push_back({call, request, tag});
  }
  bool Connected() override { return connected; }
  bool is_local() const override { return true; }

  std::vector<Sent> sent;
  bool connected = true;
};

struct Rig : ShardGroupListener, ShardRestarter {
  explicit Rig(uint32_t world) {
    ShardGroupOptions options;
    options.router_id = kRouterId;
    options.health.read_cpu = [this](const ShardProcess&) { return cpu_us; };
    std::vector<std::unique_ptr<ShardClient>> owned;
    for (uint32_t rank = 0; rank < world; ++rank) {
      auto client = std::make_unique<FakeClient>();
      clients.push_back(client.get());
      owned.push_back(std::move(client));
      wire::InfoResponse& info = infos.emplace_back();
      info.set_protocol_version(kShardProtocolVersion);
      info.set_rank(rank);
      info.set_world(world);
      info.set_state(wire::SHARD_STATE_READY);
      info.set_device("cpu");
      info.add_kv_groups()->set_block_tokens(16);
      info.set_running_max(8);
      info.set_step_tokens_max(64);
      info.set_context_tokens(100);
      info.set_pid(100 + rank);
    }
    group = std::make_unique<ShardGroup>(options, std::move(owned), this, &probe, this);
  }

  void OnGroupFormed(const FormedGroup&, int64_t) override { ++formed; }
  void OnGroupLost(const absl::Status&, int64_t) override { ++lost; }
  void OnStepAnswer(const StepAnswer&, int64_t) override {}
  void OnGroupFatal(const absl::Status& why) override { fatal = why; }
  void Restart(Rank rank, uint64_t, const std::string&) override { restarted.push_back(rank); }

  // How often `call` was sent to `rank`.
  size_t Count(Rank rank, ShardCall call) const {
    size_t count = 0;
    for (const FakeClient::Sent& sent : clients[rank]->sent) count += sent.call == call;
    return count;
  }
  // Answers the last `call` of `rank`.
  void Answer(Rank rank, ShardCall call, const absl::Status& status, std::string body = "") {
    ShardReply reply;
    reply.rank = rank;
    reply.call = call;
    for (const FakeClient::Sent& sent : clients[rank]->sent) {
      if (sent.call == call) reply.tag = sent.tag;
    }
    reply.status = status;
    reply.body = std::move(body);
    group->OnReply(std::move(reply), now_us);
  }
  // Lets time pass and answers every question of how a rank is.
  void Poll() {
    now_us += 200'000;
    std::vector<size_t> before;
    for (Rank rank = 0; rank < clients.size(); ++rank) {
      before.push_back(Count(rank, ShardCall::kInfo));
    }
    group->OnTimer(now_us);
    for (Rank rank = 0; rank < clients.size(); ++rank) {
      if (Count(rank, ShardCall::kInfo) == before[rank]) continue;
      Answer(rank, ShardCall::kInfo, absl::OkStatus(), infos[rank].SerializeAsString());
    }
  }
  void Grant() {
    for (wire::InfoResponse& info : infos) info.set_holder_router_id(kRouterId);
  }
  // The shard of `rank` comes back as another process.
  void Replace(Rank rank, uint64_t pid, uint64_t start_ticks) {
    infos[rank].set_pid(pid);
    infos[rank].set_process_start_ticks(start_ticks);
    clients[rank]->connected = true;
    for (wire::InfoResponse& info : infos) info.set_state(wire::SHARD_STATE_READY);
    for (Rank other = 0; other < clients.size(); ++other) {
      if (Count(other, ShardCall::kLeaveGroup) > 0) {
        Answer(other, ShardCall::kLeaveGroup, absl::OkStatus());
      }
    }
  }
  // What weft_shard_restarts_total says, all reasons together.
  int Restarts() {
    const std::string text = probe.Render();
    int total = 0;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      int value = 0;
      if (!absl::StartsWith(line, "weft_shard_restarts_total")) continue;
      if (absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &value)) total += value;
    }
    return total;
  }
  // From READY shards to an epoch whose shards are asked to warm up.
  void Join() {
    Grant();
    for (int i = 0; i < 5 && group->state() != GroupState::kJoining; ++i) Poll();
    REQUIRE(group->state() == GroupState::kJoining);
    wire::RendezvousResponse token;
    token.set_token("t");
    Answer(0, ShardCall::kRendezvous, absl::OkStatus(), token.SerializeAsString());
    for (Rank rank = 0; rank < clients.size(); ++rank) {
      Answer(rank, ShardCall::kJoinGroup, absl::OkStatus());
    }
  }
  void Warm(const std::vector<uint32_t>& kv_blocks) {
    wire::WarmupResponse warmup;
    for (const uint32_t blocks : kv_blocks) warmup.add_kv_blocks(blocks);
    for (Rank rank = 0; rank < clients.size(); ++rank) {
      Answer(rank, ShardCall::kWarmup, absl::OkStatus(), warmup.SerializeAsString());
    }
  }
  // To an epoch that serves.
  void Form() {
    Join();
    Warm({10});
    REQUIRE(group->state() == GroupState::kServing);
    for (wire::InfoResponse& info : infos) {
      info.set_state(wire::SHARD_STATE_JOINED);
      info.set_epoch(group->epoch());
    }
  }

  int64_t now_us = 1'000'000;
  std::optional<int64_t> cpu_us;
  int formed = 0;
  int lost = 0;
  absl::Status fatal;
  std::vector<Rank> restarted;
  Probe probe;
  std::vector<wire::InfoResponse> infos;
  std::vector<FakeClient*> clients;
  std::unique_ptr<ShardGroup> group;
};

TEST_CASE("A group forms once all its shards are ready and held", "[router][shards]") {
  Rig rig(2);
  rig.Poll();
  rig.Poll();
  // Rank 0 first, so that of two routers one gets all.
  CHECK(rig.Count(0, ShardCall::kHold) == 1);
  CHECK(rig.Count(1, ShardCall::kHold) == 0);
  rig.Poll();
  CHECK(rig.Count(0, ShardCall::kRendezvous) == 0);
  rig.infos[0].set_holder_router_id(kRouterId);
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
    Rig rig(1);
    wire::KvGroup* const second = rig.infos[0].add_kv_groups();
    second->set_block_tokens(16);
    second->set_window_tokens(20);
    rig.Join();
    rig.Warm(test.kv_blocks);
    CHECK(rig.formed == (test.why.empty() ? 1 : 0));
    CHECK(rig.group->detail() == test.why);
  }
}

TEST_CASE("A router that is refused a shard says so, waits and asks again", "[router][shards]") {
  Rig rig(1);
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
  Rig rig(2);
  rig.infos[0].set_holder_router_id(kRouterId);
  rig.infos[1].set_holder_router_id(99);
  for (int i = 0; i < 4; ++i) rig.Poll();
  REQUIRE(rig.Count(1, ShardCall::kHold) == 1);
  rig.Answer(1, ShardCall::kHold, absl::AlreadyExistsError("held"));
  wire::HoldRequest last;
  REQUIRE(last.ParseFromString(*rig.clients[0]->sent.back().request));
  CHECK(last.release());
}

TEST_CASE("A router whose shards a later start took over ends", "[router][shards]") {
  Rig rig(1);
  rig.Form();
  rig.Answer(0, ShardCall::kHold, absl::FailedPreconditionError("a later start"));
  CHECK(absl::IsFailedPrecondition(rig.fatal));
}

TEST_CASE("A broken channel is connected again while the process behind it is there",
          "[router][shards]") {
  Rig rig(2);
  rig.cpu_us = 5;
  rig.Form();
  rig.clients[1]->connected = false;
  rig.group->OnTimer(rig.now_us);
  CHECK(rig.lost == 1);
  CHECK(rig.restarted.empty());
  CHECK(rig.group->state() == GroupState::kRecovering);
}

TEST_CASE("A shard whose process is gone with its channel is restarted", "[router][shards]") {
  Rig rig(2);
  rig.Form();
  rig.clients[1]->connected = false;
  rig.group->OnTimer(rig.now_us);
  CHECK(rig.lost == 1);
  CHECK(rig.restarted == std::vector<Rank>{1});
}

// -- Counting restarts
// -----------------------------------------------------------------------------

TEST_CASE("A restart that the supervisor knew first counts once", "[router][shards]") {
  Rig rig(2);
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
  Rig rig(2);
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
  Rig rig(2);
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
  Rig rig(1);
  const int before = rig.Restarts();
  rig.group->OnShardDied({0, 90}, rig.now_us);
  rig.group->OnShardDied({0, 90}, rig.now_us);
  CHECK(rig.Restarts() == before + 1);
  rig.Form();
  CHECK(rig.Restarts() == before + 1);
}

}  // namespace
}  // namespace weft::router

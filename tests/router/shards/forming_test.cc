// Forming an epoch, stage by stage, with shards that the test answers for.

#include "router/shards/forming.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "common/limits.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

// Takes calls; nobody answers them.
class SilentClient : public ShardClient {
 public:
  void Call(ShardCall, const SharedBytes&, ShardCallTag, int64_t, bool) override {}
  bool Connected() override { return true; }
  bool is_local() const override { return true; }
};

ShardFanout SilentShards(uint32_t world) {
  std::vector<std::unique_ptr<ShardClient>> clients;
  for (uint32_t rank = 0; rank < world; ++rank) clients.push_back(std::make_unique<SilentClient>());
  return ShardFanout(std::move(clients));
}

ShardReply Answer(Rank rank, ShardCall call, const google::protobuf::Message& body) {
  ShardReply reply;
  reply.rank = rank;
  reply.call = call;
  reply.body = body.SerializeAsString();
  return reply;
}

// What a group of shards with pools of these sizes has, whose ranks answer in order, or in reverse.
uint32_t FormedBlocks(const std::vector<uint32_t>& pools, bool reverse) {
  const auto world = static_cast<uint32_t>(pools.size());
  ShardFanout shards = SilentShards(world);
  EpochForming forming(7, {}, &shards);
  std::vector<wire::InfoResponse> infos(world);
  for (Rank rank = 0; rank < world; ++rank) {
    infos[rank].set_protocol_version(kShardProtocolVersion);
    infos[rank].set_rank(rank);
    infos[rank].set_world(world);
    infos[rank].add_kv_groups()->set_block_tokens(16);
    infos[rank].set_running_max(8);
    infos[rank].set_step_tokens_max(64);
    infos[rank].set_context_tokens(100);
  }
  REQUIRE(forming.Check(infos).ok());
  forming.Begin(1, infos);
  REQUIRE(forming.OnReply(Answer(0, ShardCall::kRendezvous, wire::RendezvousResponse())).ok());
  for (Rank rank = 0; rank < world; ++rank) {
    REQUIRE(forming.OnReply(Answer(rank, ShardCall::kJoinGroup, wire::JoinGroupResponse())).ok());
  }
  forming.Warm();
  EpochForming::Progress progress = EpochForming::Progress::kUnderWay;
  for (Rank i = 0; i < world; ++i) {
    CHECK(progress == EpochForming::Progress::kUnderWay);
    const Rank rank = reverse ? world - 1 - i : i;
    wire::WarmupResponse warm;
    warm.add_kv_blocks(pools[rank]);
    const auto made = forming.OnReply(Answer(rank, ShardCall::kWarmup, warm));
    REQUIRE(made.ok());
    progress = *made;
  }
  REQUIRE(progress == EpochForming::Progress::kWarm);
  return forming.Take().kv_blocks;
}

TEST_CASE("A group has the blocks of its smallest pool", "[router][shards]") {
  const bool reverse = GENERATE(false, true);
  INFO("reverse " << reverse);
  CHECK(FormedBlocks({10}, reverse) == 10);
  CHECK(FormedBlocks({10, 9}, reverse) == 9);
  CHECK(FormedBlocks({9, 10, 11}, reverse) == 9);
  CHECK(FormedBlocks({10, 7, 11, 8}, reverse) == 7);
}

}  // namespace
}  // namespace weft::router

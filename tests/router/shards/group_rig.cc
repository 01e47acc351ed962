#include "tests/router/shards/group_rig.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/shards/ledger.h"

namespace weft::router {

namespace wire = weft::shard::v1;

GroupRig::GroupRig(uint32_t world, int64_t hang_timeout_ms, bool supervised) {
  ShardGroupOptions options;
  options.router_id = kGroupRouterId;
  options.health.hang_timeout_ms = hang_timeout_ms;
  options.health.read_cpu = [this](const ShardProcess&) { return cpu_us; };
  std::vector<std::unique_ptr<ShardClient>> owned;
  for (uint32_t rank = 0; rank < world; ++rank) {
    auto client = std::make_unique<FakeShardClient>();
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
  group = std::make_unique<ShardGroup>(options, std::move(owned), supervised ? this : nullptr,
                                       &probe, this);
}

size_t GroupRig::Count(Rank rank, ShardCall call) const {
  size_t count = 0;
  for (const FakeShardClient::Sent& sent : clients[rank]->sent) count += sent.call == call;
  return count;
}

FakeShardClient::Sent GroupRig::Last(Rank rank, ShardCall call) const {
  const std::vector<FakeShardClient::Sent>& sent = clients[rank]->sent;
  for (size_t i = sent.size(); i-- > 0;) {
    if (sent[i].call == call) return sent[i];
  }
  WEFT_CHECK_MSG(false, CallName(call));
  return {};
}

void GroupRig::Answer(Rank rank, ShardCall call, const absl::Status& status, std::string body) {
  AnswerTagged(rank, call, Last(rank, call).tag, status, std::move(body));
}

void GroupRig::AnswerTagged(Rank rank, ShardCall call, ShardCallTag tag, const absl::Status& status,
                            std::string body) {
  ShardReply reply;
  reply.rank = rank;
  reply.call = call;
  reply.tag = tag;
  reply.status = status;
  reply.body = std::move(body);
  group->OnReply(std::move(reply), now_us);
}

void GroupRig::Poll() {
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

void GroupRig::Grant() {
  for (wire::InfoResponse& info : infos) info.set_holder_router_id(kGroupRouterId);
}

void GroupRig::Leave() {
  for (wire::InfoResponse& info : infos) info.set_state(wire::SHARD_STATE_READY);
  for (Rank rank = 0; rank < clients.size(); ++rank) {
    if (Count(rank, ShardCall::kLeaveGroup) > 0) {
      Answer(rank, ShardCall::kLeaveGroup, absl::OkStatus());
    }
  }
}

void GroupRig::Replace(Rank rank, uint64_t pid, uint64_t start_ticks) {
  infos[rank].set_pid(pid);
  infos[rank].set_process_start_ticks(start_ticks);
  clients[rank]->connected = true;
  Leave();
}

int GroupRig::Restarts() {
  const std::string text = probe.Render();
  int total = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    int value = 0;
    if (!absl::StartsWith(line, "weft_shard_restarts_total")) continue;
    if (absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &value)) total += value;
  }
  return total;
}

void GroupRig::Join() {
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

void GroupRig::Warm(const std::vector<uint32_t>& kv_blocks_by_group) {
  wire::WarmupResponse warmup;
  for (const uint32_t blocks : kv_blocks_by_group) warmup.add_kv_blocks(blocks);
  for (Rank rank = 0; rank < clients.size(); ++rank) {
    Answer(rank, ShardCall::kWarmup, absl::OkStatus(), warmup.SerializeAsString());
  }
}

void GroupRig::Form() {
  Join();
  Warm({10});
  REQUIRE(group->state() == GroupState::kServing);
  for (wire::InfoResponse& info : infos) {
    info.set_state(wire::SHARD_STATE_JOINED);
    info.set_epoch(group->epoch());
  }
}

void GroupRig::SendStep(StepNumber step) {
  group->SendStep(ShardCall::kDecode, step, std::make_shared<const std::string>(), now_us);
}

std::string GroupRig::StepAnswerBytes(Epoch epoch, StepNumber step) {
  wire::StepResponse response;
  response.set_epoch(epoch);
  response.set_step(step);
  response.set_ids_hash(HashIds(response.ids()));
  return response.SerializeAsString();
}

}  // namespace weft::router

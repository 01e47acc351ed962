#include "router/shards/forming.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"

namespace weft::router {
namespace {

using weft::shard::v1::InfoResponse;

constexpr int64_t kRendezvousTimeoutUs = 5'000'000;
// Taking the KV pool and timing small shapes; on an accelerator also the worst step.
constexpr int64_t kWarmupTimeoutUs = 120'000'000;

absl::Status OfRank(const ShardReply& reply) {
  return absl::Status(
      reply.status.code(),
      absl::StrCat("rank ", reply.rank, ", ", CallName(reply.call), ": ", reply.status.message()));
}

absl::Status Malformed(const ShardReply& reply) {
  return absl::InternalError(
      absl::StrCat("rank ", reply.rank, ": malformed ", CallName(reply.call), " answer"));
}

// The epoch whose communicator every rank has kept; 0: there is none.
Epoch KeptByAll(absl::Span<const InfoResponse> infos) {
  const Epoch kept = infos.front().kept_epoch();
  const bool by_all = std::all_of(infos.begin(), infos.end(), [kept](const InfoResponse& info) {
    return info.kept_epoch() == kept;
  });
  return by_all ? kept : 0;
}

}  // namespace

absl::StatusOr<uint32_t> EpochForming::PoolBlocks(
    Rank rank, const weft::shard::v1::WarmupResponse& response) const {
  const auto refuse = [&](const auto&... what) {
    return absl::InternalError(absl::StrCat("rank ", rank, ", Warmup: ", what...));
  };
  const int groups = group_.info.kv_groups_size();
  if (response.kv_blocks_size() != groups) {
    return refuse("expected a number of blocks for each of ", groups, " KV groups, found ",
                  response.kv_blocks_size());
  }
  const uint32_t blocks = response.kv_blocks(0);
  if (blocks == 0) return refuse("the KV pool has no block");
  for (int i = 1; i < groups; ++i) {
    if (response.kv_blocks(i) == blocks) continue;
    return refuse("expected one pool for all KV groups, found ", blocks, " blocks for group 0 and ",
                  response.kv_blocks(i), " for group ", i);
  }
  return blocks;
}

absl::Status EpochForming::Check(absl::Span<const InfoResponse> infos) {
  WEFT_ASSIGN_OR_RETURN(group_.agreement, Agree(infos));
  if (!first_info_.has_value()) {
    WEFT_RETURN_IF_ERROR(FitsRouter(model_, infos.front()));
    if (check_model_) WEFT_RETURN_IF_ERROR(check_model_(infos.front()));
    const std::string not_compared = TokenizersNotCompared(model_, infos.front());
    if (!not_compared.empty()) WEFT_LOG_INFO("{}", not_compared);
    return absl::OkStatus();
  }
  for (const InfoResponse& info : infos) WEFT_RETURN_IF_ERROR(SameModel(*first_info_, info));
  return absl::OkStatus();
}

void EpochForming::Begin(Epoch epoch, absl::Span<const InfoResponse> infos) {
  group_.epoch = epoch;
  group_.info = infos.front();
  group_.kv_blocks = 0;
  if (const Epoch kept = KeptByAll(infos); kept != 0) return Join("", kept);
  stage_ = ShardCall::kRendezvous;
  weft::shard::v1::RendezvousRequest request;
  request.set_epoch(epoch);
  request.set_router_id(router_id_);
  request.set_world(shards_->world());
  shards_->Send(0, ShardCall::kRendezvous, request, {epoch, 0}, kRendezvousTimeoutUs);
}

absl::StatusOr<EpochForming::Progress> EpochForming::OnReply(const ShardReply& reply) {
  if (!reply.status.ok()) return OfRank(reply);
  if (reply.call != stage_) return Progress::kUnderWay;
  if (reply.call == ShardCall::kRendezvous) {
    weft::shard::v1::RendezvousResponse response;
    if (!response.ParseFromString(reply.body)) return Malformed(reply);
    Join(response.token(), 0);
    return Progress::kUnderWay;
  }
  if (reply.call == ShardCall::kJoinGroup) {
    return AllDone(reply.rank) ? Progress::kJoined : Progress::kUnderWay;
  }
  weft::shard::v1::WarmupResponse response;
  if (!response.ParseFromString(reply.body)) return Malformed(reply);
  WEFT_ASSIGN_OR_RETURN(const uint32_t kv_blocks, PoolBlocks(reply.rank, response));
  group_.kv_blocks = group_.kv_blocks == 0 ? kv_blocks : std::min(group_.kv_blocks, kv_blocks);
  if (reply.rank == 0) group_.warmup = std::move(response);
  return AllDone(reply.rank) ? Progress::kWarm : Progress::kUnderWay;
}

void EpochForming::Join(std::string token, Epoch kept_epoch) {
  stage_ = ShardCall::kJoinGroup;
  done_.assign(shards_->world(), false);
  weft::shard::v1::JoinGroupRequest request;
  request.set_epoch(group_.epoch);
  request.set_router_id(router_id_);
  request.set_world(shards_->world());
  request.set_token(std::move(token));
  request.set_kept_epoch(kept_epoch);
  request.set_isa(group_.agreement.isa);
  for (Rank rank = 0; rank < shards_->world(); ++rank) {
    request.set_rank(rank);
    shards_->Send(rank, ShardCall::kJoinGroup, request, {group_.epoch, 0}, kJoinUsMax);
  }
}

void EpochForming::Warm() {
  stage_ = ShardCall::kWarmup;
  done_.assign(shards_->world(), false);
  weft::shard::v1::WarmupRequest request;
  request.set_epoch(group_.epoch);
  request.set_router_id(router_id_);
  for (Rank rank = 0; rank < shards_->world(); ++rank) {
    shards_->Send(rank, ShardCall::kWarmup, request, {group_.epoch, 0}, kWarmupTimeoutUs);
  }
}

FormedGroup EpochForming::Take() {
  if (!first_info_.has_value()) first_info_ = group_.info;
  return std::move(group_);
}

bool EpochForming::AllDone(Rank rank) {
  done_[rank] = true;
  return std::all_of(done_.begin(), done_.end(), [](bool done) { return done; });
}

}  // namespace weft::router

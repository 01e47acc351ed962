#include "router/shards/claims.h"

#include <algorithm>

#include "absl/status/status.h"

namespace weft::router {
namespace {

// A claim has no end of its own: ten years.
constexpr int64_t kHoldTimeoutUs = int64_t{10} * 365 * 24 * 3600 * 1'000'000;
constexpr int64_t kReleaseTimeoutUs = 1'000'000;
// Between two tries where another router holds the shard.
constexpr int64_t kRefusedFirstUs = 100'000;
constexpr int64_t kRefusedMaxUs = 1'000'000;
constexpr uint32_t kDoublingsMax = 4;
// Between two tries at a shard that cannot be reached. Without it each failed call would have all
// ranks asked at once, and each of their answers would make another.
constexpr int64_t kLostUs = 20'000;
// A newcomer that gave its shards up lets a router that recovers go first: that one asks within
// kRefusedMaxUs.
constexpr int64_t kGiveWayUs = 2 * kRefusedMaxUs;
// What the tag of a Hold call that releases bears.
constexpr uint64_t kRelease = 1;

}  // namespace

ShardClaims::ShardClaims(uint64_t router_id, LauncherClaim launcher, ShardFanout* shards)
    : router_id_(router_id), launcher_(launcher), shards_(shards), ranks_(shards->world()) {}

bool ShardClaims::OnInfo(Rank rank, const weft::shard::v1::InfoResponse& info, int64_t now_us) {
  RankState& state = ranks_[rank];
  state.held = state.in_flight && info.holder_router_id() == router_id_;
  if (state.held) state.refusals = 0;
  if (info.holder_router_id() == 0) state.due_us = 0;  // who held it has ended
  if (!ranks_[0].held) return rank == 0 && Ask(rank, now_us);
  bool asked = false;
  for (Rank other = 1; other < ranks_.size(); ++other) asked |= Ask(other, now_us);
  return asked;
}

bool ShardClaims::Ask(Rank rank, int64_t now_us) {
  RankState& state = ranks_[rank];
  if (state.in_flight || now_us < std::max(state.due_us, give_way_until_us_)) return false;
  state.in_flight = true;
  weft::shard::v1::HoldRequest request;
  request.set_router_id(router_id_);
  request.set_launcher_id(launcher_.launcher_id);
  request.set_generation(launcher_.generation);
  shards_->Send(rank, ShardCall::kHold, request, {}, kHoldTimeoutUs);
  return true;
}

ShardClaims::End ShardClaims::OnReply(const ShardReply& reply, bool formed_before, int64_t now_us) {
  if (reply.tag.number == kRelease) return End::kLost;
  RankState& state = ranks_[reply.rank];
  state.in_flight = false;
  state.held = false;
  if (absl::IsFailedPrecondition(reply.status)) return End::kFenced;
  if (!absl::IsAlreadyExists(reply.status)) {
    // One that is back says in its Info that nobody holds it, and is asked at once.
    state.due_us = now_us + kLostUs;
    return End::kLost;
  }
  state.due_us = now_us + std::min(kRefusedFirstUs << std::min(state.refusals++, kDoublingsMax),
                                   kRefusedMaxUs);
  if (!formed_before && reply.rank > 0) ReleaseAll(now_us);
  return End::kRefused;
}

void ShardClaims::ReleaseAll(int64_t now_us) {
  give_way_until_us_ = now_us + kGiveWayUs;
  weft::shard::v1::HoldRequest request;
  request.set_router_id(router_id_);
  request.set_launcher_id(launcher_.launcher_id);
  request.set_generation(launcher_.generation);
  request.set_release(true);
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    state.held = false;
    if (state.in_flight) {
      shards_->Send(rank, ShardCall::kHold, request, {0, kRelease}, kReleaseTimeoutUs);
    }
  }
}

}  // namespace weft::router

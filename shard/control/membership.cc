#include "shard/control/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::shard {
namespace {

absl::Status OtherRouter(Epoch epoch) {
  return absl::PermissionDeniedError(
      absl::StrCat("router_id: epoch ", epoch, " belongs to another router"));
}

}  // namespace

absl::Status FencedError(Epoch epoch, Epoch seen) {
  return absl::FailedPreconditionError(
      absl::StrCat("epoch: ", epoch, ", this shard has seen epoch ", seen));
}

absl::Status GroupMembership::CheckHold(const RouterClaim& claim) const {
  if (claim.router_id == 0) return absl::InvalidArgumentError("router_id: must not be 0");
  if (holder_.router_id == 0 || holder_.router_id == claim.router_id) return absl::OkStatus();
  if (claim.launcher_id == 0 || claim.launcher_id != holder_.launcher_id) {
    return CheckRouter(claim.router_id);
  }
  if (claim.generation > holder_.generation) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("generation: ", claim.generation, ", start ", holder_.generation,
                   " of the router by the same launcher holds this shard"));
}

absl::Status GroupMembership::CheckRendezvous(Epoch epoch, uint64_t router_id) const {
  WEFT_RETURN_IF_ERROR(CheckRouter(router_id));
  if (epoch <= fence_) return FencedError(epoch, fence_);
  return CheckJump(epoch);
}

absl::Status GroupMembership::CheckJoin(Epoch epoch, uint64_t router_id) const {
  WEFT_RETURN_IF_ERROR(CheckRouter(router_id));
  if (epoch <= used_ || epoch < fence_) return FencedError(epoch, fence_);
  if (epoch == fence_ && router_id != fence_router_id_) return OtherRouter(epoch);
  return CheckJump(epoch);
}

absl::Status GroupMembership::CheckLeave(Epoch epoch, uint64_t router_id, Epoch member,
                                         uint64_t member_id) const {
  WEFT_RETURN_IF_ERROR(CheckRouter(router_id));
  if (epoch < member) return FencedError(epoch, member);
  if (member > 0 && epoch == member && router_id != member_id) return OtherRouter(epoch);
  return CheckJump(epoch);
}

absl::Status GroupMembership::CheckRouter(uint64_t router_id) const {
  if (router_id == 0) return absl::InvalidArgumentError("router_id: must not be 0");
  if (holder_.router_id == 0 || holder_.router_id == router_id) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("another router (",
                                               absl::Hex(holder_.router_id, absl::kZeroPad16),
                                               ") holds this shard and shows life"));
}

absl::Status GroupMembership::CheckJump(Epoch epoch) const {
  // A shard that was just started knows no epoch, and its group may have seen many.
  const Epoch highest = fence_ == 0 ? kFirstEpochMax : fence_ + kEpochJumpMax;
  if (epoch <= highest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("epoch: ", epoch, ", expected at most ", highest, " after epoch ", fence_));
}

void GroupMembership::Raise(Epoch epoch, uint64_t router_id) {
  if (epoch <= fence_) return;
  fence_ = epoch;
  fence_router_id_ = router_id;
}

void GroupMembership::Use(Epoch epoch) { used_ = std::max(used_, epoch); }

}  // namespace weft::shard

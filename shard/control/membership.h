// Who may form epochs on this shard: one router at a time holds it, for as long as the connection
// of its Hold call lives, and epochs only go up, by a bounded amount. Part of the executor's state,
// guarded by its lock; it decides and remembers, and ends nothing itself. A check changes nothing,
// so that a refused call leaves no trace; who asks is checked before what is asked for.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/ids.h"

namespace weft::shard {

// A router's claim on its shards.
struct RouterClaim {
  // Random number of the router process, never 0.
  uint64_t router_id = 0;
  // Random number of the launcher that started it, 0 = none, and how often that launcher has
  // started a router: a supervised restart takes over from the process before it at once.
  uint64_t launcher_id = 0;
  uint64_t generation = 0;
};

class GroupMembership {
 public:
  // -- Claims ----------------------------------------------------------------------------------
  // ALREADY_EXISTS while another router holds the shard, FAILED_PRECONDITION when that one is a
  // later start by the same launcher: then the claimant is the one to end.
  absl::Status CheckHold(const RouterClaim& claim) const;
  // REQUIRES: CheckHold was OK.
  void Hold(const RouterClaim& claim) { holder_ = claim; }
  void Release() { holder_ = RouterClaim(); }
  // 0 when nobody holds the shard.
  uint64_t holder_id() const { return holder_.router_id; }

  // -- Epochs ----------------------------------------------------------------------------------
  // INVALID_ARGUMENT for no router_id or a jump beyond the bounds of common/limits.h,
  // ALREADY_EXISTS while another router holds the shard, FAILED_PRECONDITION for an epoch that is
  // not above those seen, PERMISSION_DENIED for one that another router has begun.
  absl::Status CheckRendezvous(Epoch epoch, uint64_t router_id) const;
  absl::Status CheckJoin(Epoch epoch, uint64_t router_id) const;
  // `member` is the epoch that this shard is in or is joining and `member_id` whose it is; 0 and 0
  // when it is in none.
  absl::Status CheckLeave(Epoch epoch, uint64_t router_id, Epoch member, uint64_t member_id) const;

  // `epoch` was heard of from `router_id`: lower ones are fenced off.
  void Raise(Epoch epoch, uint64_t router_id);
  // `epoch` is joined or left: it is not joined again.
  void Use(Epoch epoch);
  Epoch fence() const { return fence_; }
  Epoch used() const { return used_; }

 private:
  absl::Status CheckRouter(uint64_t router_id) const;
  // `epoch` is not above the highest seen by more than a group can be ahead of a shard.
  absl::Status CheckJump(Epoch epoch) const;

  // router_id 0 when nobody holds the shard.
  RouterClaim holder_;
  // Highest epoch this shard has heard of, and whose it is.
  Epoch fence_ = 0;
  uint64_t fence_router_id_ = 0;
  // Highest epoch joined or left.
  Epoch used_ = 0;
};

// The refusal of `epoch` by a shard that has seen `seen`.
absl::Status FencedError(Epoch epoch, Epoch seen);

}  // namespace weft::shard

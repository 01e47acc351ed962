// The router's claim on each of its shards: a Hold call that is open for as long as the router
// lives, so that no second router takes the shards away from it. Owned by the shard group, engine
// loop's thread only. It asks, waits with a back-off where another router holds a shard, and knows
// what is granted; it forms nothing and never blocks.

#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "router/shards/fanout.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

// Who started this router, so that a supervised restart takes over from the process before it.
struct LauncherClaim {
  // Random number of the launcher; 0 = started by nobody.
  uint64_t launcher_id = 0;
  // How often it has started a router, this start included.
  uint64_t generation = 0;
};

class ShardClaims {
 public:
  // How a Hold call ended.
  enum class End : uint8_t {
    // The connection or the shard went away; it is asked again.
    kLost,
    // Another router holds the shard; it is asked again after a while.
    kRefused,
    // A later start of this router holds the shard: this one is to end.
    kFenced,
  };

  // `router_id` is never 0. `shards` must outlive this.
  ShardClaims(uint64_t router_id, LauncherClaim launcher, ShardFanout* shards);

  // `rank` says `info`. Sends Hold when it is due: to rank 0 first and to the others once that one
  // is held, so that of two routers one gets all. True when any was sent just now; the next
  // answers will say whether it was granted.
  bool OnInfo(Rank rank, const weft::shard::v1::InfoResponse& info, int64_t now_us);
  // An answer of Hold. `formed_before`: this router has served. One that has not gives up the
  // shards it holds when it cannot have them all, so that one that recovers gets its own back.
  End OnReply(const ShardReply& reply, bool formed_before, int64_t now_us);

  bool Held(Rank rank) const { return ranks_[rank].held; }

 private:
  struct RankState {
    bool in_flight = false;
    bool held = false;
    uint32_t refusals = 0;
    // When it may be asked next, as long as somebody holds it.
    int64_t due_us = 0;
  };

  // True when Hold was sent.
  bool Ask(Rank rank, int64_t now_us);
  void ReleaseAll(int64_t now_us);

  const uint64_t router_id_;
  const LauncherClaim launcher_;
  ShardFanout* const shards_;
  std::vector<RankState> ranks_;
  // Nothing is asked for before, whoever holds the shards.
  int64_t give_way_until_us_ = 0;
};

}  // namespace weft::router

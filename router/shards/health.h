// How the ranks of a group are: polls Info, remembers what each rank last said of itself, and looks
// for broken channels and hung processes. Owned by the shard group, engine loop's thread only. It
// finds out and says so; what is done about a sick rank is the group's decision.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "router/observe/probe.h"
#include "router/shards/fanout.h"
#include "router/shards/group_state.h"
#include "router/shards/vitals.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

struct ShardHealthOptions {
  // No sign of life for so long = hung; 0 = by device.
  int64_t hang_timeout_ms = 0;
  // How a local shard's CPU time is read.
  ProcessCpuReader read_cpu = ReadShardCpuUs;
  // What metrics call rank 0: ranks are counted through all groups.
  Rank first_rank = 0;
};

// What a look at a rank found.
struct ShardFinding {
  enum class Fault : uint8_t { kNone, kDisconnected, kProcessHung, kDeviceHung };
  Fault fault = Fault::kNone;
  // Not OK when there is a fault.
  absl::Status why;
};

class ShardHealth {
 public:
  // `shards` and `probe` must outlive this.
  ShardHealth(ShardHealthOptions options, ShardFanout* shards, Probe* probe);

  // -- Polling ---------------------------------------------------------------------------------
  // The group enters `state`: what was asked before is dropped unread. Outside an epoch all ranks
  // must say anew how they are; inside, the polling is the heartbeat.
  void EnterState(GroupState state, int64_t now_us);
  // Sends the Info calls that are due. Returns when the next one is.
  int64_t Poll(Epoch epoch, int64_t now_us);
  // Takes an answer of Info: what the rank says, or why it could not be asked. Empty when the
  // question was of an earlier state; then it was a sign of life and no more.
  std::optional<absl::StatusOr<weft::shard::v1::InfoResponse>> OnInfo(Rank rank,
                                                                      const ShardReply& reply,
                                                                      int64_t now_us);
  // Outside an epoch, what `rank` said is what the next group is formed of.
  void Accept(Rank rank, weft::shard::v1::InfoResponse info, int64_t now_us);
  // What `rank` said before is out of date: it is asked again at once.
  void Forget(Rank rank);
  // There will be news: all ranks are asked again at once, and what they said stands until then.
  void AskSoon();
  // `rank` could not be asked outside an epoch. Logged once for each reason.
  void SayUnreachable(Rank rank, const absl::Status& why);

  // -- Looking for faults ----------------------------------------------------------------------
  // Everything counts as alive from now on.
  void Restart(int64_t now_us);
  // `rank` answered a step.
  void OnStep(Rank rank, int64_t now_us) { ranks_[rank].vitals.OnStep(now_us); }
  // `owes_since_us`: `rank` owes a step since then, 0 for none. `restarting`: its process is being
  // replaced, so only its channel is looked at.
  ShardFinding Examine(Rank rank, int64_t owes_since_us, bool restarting, int64_t now_us);
  // The process that `rank` last ran as is provably there, so that it can be connected to again.
  bool ProcessThere(Rank rank);
  // Known once the first group formed.
  void SetOnCpu(bool on_cpu) { on_cpu_ = on_cpu; }
  int64_t hang_timeout_us() const;

  // -- What is known ---------------------------------------------------------------------------
  // Of this state; empty until answered.
  const std::optional<weft::shard::v1::InfoResponse>& info(Rank rank) const {
    return ranks_[rank].info;
  }
  // `info` comes from the process of the last accepted answer, and not from one that took its
  // place, perhaps with the same pid as in a container.
  bool IsProcess(Rank rank, const weft::shard::v1::InfoResponse& info) const;
  // Process of the last accepted answer; 0 before it.
  uint64_t pid(Rank rank) const { return ranks_[rank].process.pid; }
  // 0 .. 100 of the bytes to load, those of ranks that have not answered among them.
  int percent() const;

 private:
  struct RankState {
    std::optional<weft::shard::v1::InfoResponse> info;
    ShardProcess process;
    bool info_in_flight = false;
    int64_t info_due_us = 0;
    // Why it could not be asked, as last logged; empty when it answered.
    std::string unreachable;
    ShardVitals vitals;
  };

  int64_t InfoIntervalUs() const;

  const ShardHealthOptions options_;
  ShardFanout* const shards_;
  Probe* const probe_;
  std::vector<RankState> ranks_;
  GroupState state_ = GroupState::kConnecting;
  // Grows with every change of state; answers of an older one are dropped unread.
  uint64_t generation_ = 1;
  // The shards compute on the CPU, as far as is known.
  bool on_cpu_ = true;
};

}  // namespace weft::router

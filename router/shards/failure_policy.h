// What is done about failures of a group: which processes are to be restarted, each once, and how
// long the next attempt to form an epoch waits after failed ones. Counts each process that is
// replaced once, whoever knew first: this router, the supervisor, or the shard that came after it.
// Owned by the shard group, engine loop's thread only; it never blocks and never ends an epoch
// itself.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "router/observe/probe.h"
#include "router/shards/supervisor_client.h"

namespace weft::router {

class FailurePolicy {
 public:
  // `restarter` may be null: then shards come back by themselves. Both must outlive this.
  // `first_rank` is what the log calls rank 0: there, ranks whose processes come and go are counted
  // through all groups, as the launcher counts them.
  FailurePolicy(uint32_t world, Rank first_rank, ShardRestarter* restarter, Probe* probe)
      : first_rank_(first_rank),
        restarter_(restarter),
        probe_(probe),
        restart_pids_(world, 0),
        counted_pids_(world, 0) {}

  // -- Restarts --------------------------------------------------------------------------------
  // Has the process `pid` of `rank` replaced, unless that is under way. A `pid` of 0 is nobody.
  void AskRestart(Rank rank, uint64_t pid, RestartReason reason, const absl::Status& why);
  // Somebody else replaces it, or has done so.
  void SetRestarting(Rank rank, uint64_t pid);
  // The process `pid` of `rank` has ended unasked. It may be one that never answered.
  void OnDied(Rank rank, uint64_t pid) { Count(rank, pid, RestartReason::kExit); }
  // `rank` answers as the new process `new_pid`; `pid` was the one before, 0 when there was none.
  void OnReplaced(Rank rank, uint64_t pid, uint64_t new_pid);
  bool Restarting(Rank rank, uint64_t pid) const { return restart_pids_[rank] == pid; }

  // -- Attempts --------------------------------------------------------------------------------
  bool MayAttempt(int64_t now_us) const { return now_us >= next_attempt_us_; }
  // An attempt to form an epoch failed; the next one waits longer each time.
  void OnAttemptFailed(int64_t now_us);
  // A group that served is lost; the next attempt may begin at once.
  void OnServingLost(int64_t now_us) { lost_us_ = now_us; }
  // A group formed: what failed before is past.
  void OnFormed(int64_t now_us);

 private:
  void Count(Rank rank, uint64_t pid, RestartReason reason);

  const Rank first_rank_;
  ShardRestarter* const restarter_;
  Probe* const probe_;
  // By rank, the process whose restart was asked for; 0 = none.
  std::vector<uint64_t> restart_pids_;
  // By rank, the process that was counted last as replaced; 0 = none.
  std::vector<uint64_t> counted_pids_;
  uint32_t failed_attempts_ = 0;
  int64_t next_attempt_us_ = 0;
  // When the last group that served was lost; 0 = none since one formed.
  int64_t lost_us_ = 0;
};

}  // namespace weft::router

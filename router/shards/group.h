// The life of the shard group: CONNECTING -> LOADING -> JOINING -> WARMING -> SERVING, and when a
// rank dies or hangs RECOVERING and on to JOINING again in a new epoch. Polls Info, checks that the
// shards fit together, forms epochs, fans steps out to all ranks, watches for death and hanging,
// and has dead ranks restarted. Owned by the engine loop and called by its thread only: events and
// time come in, calls go out through ShardClient; it never blocks and knows no sequence.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "proto/shard.pb.h"
#include "router/observe/probe.h"
#include "router/scheduler/scheduler.h"
#include "router/shards/agreement.h"
#include "router/shards/client.h"
#include "router/shards/ledger.h"
#include "router/shards/supervisor_client.h"
#include "router/shards/vitals.h"

namespace weft::router {

struct ShardGroupOptions {
  // As EngineOptions.hang_timeout_ms; 0 = by device.
  int64_t hang_timeout_ms = 0;
  // Random number of this router process, never 0.
  uint64_t router_id = 0;
  // How a local shard's CPU time is read.
  ProcessCpuReader read_cpu = ReadProcessCpuUs;
};

// An epoch that has begun.
struct FormedGroup {
  Epoch epoch = 0;
  // Smallest of all ranks.
  uint32_t kv_blocks = 0;
  std::vector<GroupInfo::Cost> costs;
  GroupAgreement agreement;
  // Rank 0's.
  weft::shard::v1::InfoResponse info;
};

// What the engine loop hears. Calls come from inside ShardGroup's own methods.
class ShardGroupListener {
 public:
  virtual ~ShardGroupListener() = default;
  virtual void OnGroupFormed(const FormedGroup& group, int64_t now_us) = 0;
  // Only after OnGroupFormed. No answer of that epoch follows.
  virtual void OnGroupLost(const absl::Status& why, int64_t now_us) = 0;
  // Rank 0's answers, in step order.
  virtual void OnStepAnswer(const StepAnswer& answer, int64_t now_us) = 0;
  // No group can ever form for this router.
  virtual void OnGroupFatal(const absl::Status& why) = 0;
};

class ShardGroup {
 public:
  // `clients` in rank order. `restarter` may be null. `probe` and `listener` must outlive this.
  ShardGroup(ShardGroupOptions options, std::vector<std::unique_ptr<ShardClient>> clients,
             ShardRestarter* restarter, Probe* probe, ShardGroupListener* listener);

  // -- Events ----------------------------------------------------------------------------------
  void OnReply(ShardReply reply, int64_t now_us);
  // The supervisor saw a shard exit.
  void OnShardDied(const ShardDeath& death, int64_t now_us);
  // Sends what is due, looks for hung ranks. Returns when it wants to be called again.
  int64_t OnTimer(int64_t now_us);

  // -- Actions ---------------------------------------------------------------------------------
  // Sends one serialised step to all ranks. REQUIRES: state() is kServing, steps in order.
  void SendStep(ShardCall call, StepNumber step, const SharedBytes& request, int64_t now_us);
  // Fails the epoch (the engine found an answer that cannot be). REQUIRES: state() is kServing.
  void FailEpoch(const absl::Status& why, int64_t now_us);
  // Leaves the group for good: shards become READY, nothing is formed any more.
  void Leave(int64_t now_us);
  // Some rank has not answered LeaveGroup yet.
  bool leaving() const;

  GroupState state() const { return state_; }
  Epoch epoch() const { return epoch_; }
  // 0 .. 100 of the bytes to load.
  int percent() const;
  // What it waits for, for people.
  const std::string& detail() const { return detail_; }

 private:
  struct RankState {
    std::unique_ptr<ShardClient> client;
    // Of this generation; empty until answered.
    std::optional<weft::shard::v1::InfoResponse> info;
    // Process of the last Info answer; 0 before it.
    uint64_t pid = 0;
    bool info_in_flight = false;
    int64_t info_due_us = 0;
    bool leave_in_flight = false;
    // Has answered JoinGroup or Warmup, whichever is under way.
    bool done = false;
    // Why it could not be asked, as last logged; empty when it answered.
    std::string unreachable;
    // A restart was asked for this process.
    uint64_t restart_pid = 0;
    ShardVitals vitals;
  };

  // -- Info and watching
  void SendInfo(Rank rank, int64_t now_us);
  void OnInfo(Rank rank, const ShardReply& reply, int64_t now_us);
  // Outside an epoch: shows and logs what keeps a rank from answering.
  void SayUnreachable(Rank rank, const absl::Status& why);
  // A rank that should be in the epoch says or shows otherwise.
  void CheckMember(Rank rank, const weft::shard::v1::InfoResponse& info, int64_t now_us);
  // Looks for broken channels and hung ranks.
  void Watch(int64_t now_us);
  int64_t InfoIntervalUs() const;
  int64_t HangTimeoutUs() const;
  // The shards compute on the CPU, as far as is known.
  bool OnCpu() const { return !first_info_.has_value() || first_info_->device() == "cpu"; }

  // -- Forming an epoch
  void MaybeForm(int64_t now_us);
  // All ranks are READY; empty or an error for people otherwise.
  bool AllReady(int64_t now_us);
  void OnRendezvous(const ShardReply& reply, int64_t now_us);
  void OnJoin(Rank rank, int64_t now_us);
  void OnWarmup(Rank rank, const ShardReply& reply, int64_t now_us);
  bool AllDone(Rank rank);
  void Formed(int64_t now_us);

  // -- Losing one
  // Ends the epoch or the attempt. `dead`: the rank that is to be restarted, if one is known.
  void Lose(const absl::Status& why, std::optional<Rank> dead, RestartReason reason,
            int64_t now_us);
  void OnStep(Rank rank, const ShardReply& reply, int64_t now_us);
  void SendLeave(Rank rank, Epoch epoch);
  void OnLeave(Rank rank, const ShardReply& reply);
  void AskRestart(Rank rank, RestartReason reason, const absl::Status& why);
  void Fatal(const absl::Status& why);

  void EnterState(GroupState state, std::string detail, int64_t now_us);
  // Calls a rank outside the steps.
  void Send(Rank rank, ShardCall call, const google::protobuf::Message& request,
            int64_t timeout_us);
  bool InEpoch() const { return state_ >= GroupState::kJoining && state_ <= GroupState::kServing; }
  uint32_t world() const { return static_cast<uint32_t>(ranks_.size()); }

  const ShardGroupOptions options_;
  ShardRestarter* const restarter_;
  Probe* const probe_;
  ShardGroupListener* const listener_;
  std::vector<RankState> ranks_;

  GroupState state_ = GroupState::kConnecting;
  std::string detail_;
  // Nothing is formed any more.
  bool closed_ = false;
  // Grows with every change of state; answers of an older one are dropped unread.
  uint64_t generation_ = 1;
  // Highest epoch this router has tried to form; 0 before.
  Epoch epoch_ = 0;
  // Rank 0's Info when the first epoch formed.
  std::optional<weft::shard::v1::InfoResponse> first_info_;
  // Of the attempt under way.
  GroupAgreement agreement_;
  std::vector<weft::shard::v1::WarmupResponse> warmups_;
  // Attempts that failed in a row, and when the next may begin.
  uint32_t failed_attempts_ = 0;
  int64_t next_attempt_us_ = 0;
  int64_t lost_us_ = 0;
  StepLedger ledger_;
};

}  // namespace weft::router

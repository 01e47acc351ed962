// The life of the shard group: CONNECTING -> LOADING -> JOINING -> WARMING -> SERVING, and when a
// rank dies or hangs RECOVERING and on to JOINING again in a new epoch. The state machine that puts
// its parts together: health finds out how the ranks are, forming makes an epoch, the ledger keeps
// its steps, the failure policy has dead ranks restarted. Owned by the engine loop and called by
// its thread only: events and time come in, calls go out through ShardClient; it never blocks and
// knows no sequence.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "router/observe/probe.h"
#include "router/shards/claims.h"
#include "router/shards/client.h"
#include "router/shards/failure_policy.h"
#include "router/shards/fanout.h"
#include "router/shards/forming.h"
#include "router/shards/group_state.h"
#include "router/shards/health.h"
#include "router/shards/ledger.h"
#include "router/shards/supervisor_client.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

struct ShardGroupOptions {
  // Of those of this router.
  uint32_t group = 0;
  // For log lines; empty when it is the only one.
  std::string name;
  // Whether the model that rank 0 describes is the one of the other groups; null = there are none.
  std::function<absl::Status(const weft::shard::v1::InfoResponse&)> check_model;
  ShardHealthOptions health;
  // Random number of this router process, never 0.
  uint64_t router_id = 0;
  // Who started it.
  LauncherClaim launcher;
  // What the shards' model is compared with before the first epoch.
  RouterModel model;
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
  // No group can ever form for this router; the listener says so in the log. INVALID_ARGUMENT: the
  // shards of a launcher do not fit together or do not have the router's model, and another start
  // would end the same way. FAILED_PRECONDITION: another router has taken over.
  virtual void OnGroupFatal(const absl::Status& why) = 0;
};

class ShardGroup {
 public:
  // `clients` in rank order. `restarter` may be null. `probe` and `listener` must outlive this.
  ShardGroup(const ShardGroupOptions& options, std::vector<std::unique_ptr<ShardClient>> clients,
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
  // Sends masks of rows of a step that was sent. REQUIRES: state() is kServing.
  void SendMasks(StepNumber step, const SharedBytes& request);
  // Fails the epoch (the engine found an answer that cannot be). REQUIRES: state() is kServing.
  void FailEpoch(const absl::Status& why, int64_t now_us);
  // Leaves the group for good: shards become READY, nothing is formed any more.
  void Leave(int64_t now_us);
  // Some rank has not answered LeaveGroup yet.
  bool leaving() const;

  GroupState state() const { return state_; }
  Epoch epoch() const { return epoch_; }
  // 0 .. 100 of the bytes to load.
  int percent() const { return state_ == GroupState::kServing ? 100 : health_.percent(); }
  // What it waits for, for people.
  const std::string& detail() const { return detail_; }

 private:
  void OnInfo(const ShardReply& reply, int64_t now_us);
  // A rank that should be in the epoch may say otherwise.
  void CheckMember(Rank rank, const weft::shard::v1::InfoResponse& info, int64_t now_us);
  // Looks for broken channels and hung ranks.
  void Watch(int64_t now_us);

  void MaybeForm(int64_t now_us);
  // All ranks are READY and held; those that are in an old epoch are asked to leave it.
  bool AllReady(int64_t now_us);
  // The claim on a rank ended.
  void OnHold(const ShardReply& reply, int64_t now_us);
  void OnForming(const ShardReply& reply, int64_t now_us);
  void Formed(int64_t now_us);

  void OnStep(const ShardReply& reply, int64_t now_us);
  int64_t StepTimeoutUs() const;
  // `whole`: no rank of that epoch is known to be lost.
  void SendLeave(Rank rank, Epoch epoch, bool whole);
  void OnLeave(const ShardReply& reply);

  // Ends the epoch or the attempt. `dead`: the rank that is to be restarted, if one is known.
  void Lose(const absl::Status& why, std::optional<Rank> dead, RestartReason reason,
            int64_t now_us);
  // The same after an answer of `rank`, which is dead when the call could not reach it.
  void LoseAfterCall(Rank rank, const absl::Status& why, int64_t now_us);
  void Fatal(const absl::Status& why);

  void EnterState(GroupState state, std::string detail, int64_t now_us);
  bool InEpoch() const { return router::InEpoch(state_); }
  uint32_t world() const { return shards_.world(); }

  const uint32_t group_;
  // At the end of log lines.
  const std::string tag_;
  const Rank first_rank_;
  const uint64_t router_id_;
  Probe* const probe_;
  ShardGroupListener* const listener_;
  // A launcher looks after the shards.
  const bool supervised_;
  ShardFanout shards_;
  ShardHealth health_;
  ShardClaims claims_;
  EpochForming forming_;
  FailurePolicy failures_;
  StepLedger ledger_;

  GroupState state_ = GroupState::kConnecting;
  std::string detail_;
  // Nothing is formed any more.
  bool closed_ = false;
  // Why the last attempt to form a group failed, as logged; empty once one has served.
  std::string failed_attempt_;
  // Highest epoch this router has tried to form; 0 before.
  Epoch epoch_ = 0;
  // By rank: LeaveGroup is on its way.
  std::vector<bool> leave_in_flight_;
  // By rank: why its last process could not start; empty when it could.
  std::vector<std::string> last_words_;
};

}  // namespace weft::router

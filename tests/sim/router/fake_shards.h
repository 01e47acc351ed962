// The shard processes of a simulated world: each loads, is held, joins epochs, runs steps, and does
// what faults say: dies, hangs, answers late, twice, wrongly or not at all, comes back with another
// pool or another model. They hold to the protocol of shard.proto as real shards do, so whatever a
// router does against it is seen here. Also the supervisor that restarts them. Owned by World; one
// thread.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "router/shards/supervisor_client.h"
#include "router/shards/vitals.h"
#include "tests/sim/router/fake_epoch.h"
#include "tests/sim/router/script.h"
#include "tests/sim/router/virtual_time.h"
#include "tests/sim/router/watch.h"
#include "tests/sim/router/wire.h"

namespace weft::router::sim {

class FakeShards : private WireServer, private Happening {
 public:
  // Of group `group`; its processes have pids of their own.
  FakeShards(uint32_t group, const Settings& settings, VirtualTime* time, Watch* watch);

  // -- What the router is given
  std::unique_ptr<ShardClient> MakeClient(Rank rank, ShardReplySink sink) {
    return wire_.MakeClient(rank, std::move(sink));
  }
  std::unique_ptr<ShardRestarter> MakeRestarter(std::function<void(ShardDeath)> on_death);
  std::optional<int64_t> ReadCpuUs(const ShardProcess& process);

  // A fault happens, or waits for its call.
  void Do(const Action& fault);

  // Null before the first.
  FakeEpoch* epoch() { return epoch_.get(); }
  // All processes are well and none is held up.
  bool AllWell() const;
  // Some process belongs to an epoch.
  bool AnyJoined() const;
  // When the last step ended.
  int64_t last_step_us() const { return last_step_us_; }

 private:
  enum Event : uint32_t { kRestart, kStepEnds, kTell, kReplace, kMasksLate };
  struct Process {
    bool alive = true;
    uint64_t pid = 0;
    uint64_t start_ticks = 0;
    int64_t ready_us = 0;
    // Until then it does nothing at all; and its device nothing.
    int64_t hung_until_us = 0;
    int64_t hung_since_us = 0;
    int64_t stuck_until_us = 0;
    int64_t stuck_since_us = 0;
    uint32_t kv_blocks = 0;
    bool other_model = false;
    // -- Of the protocol
    uint64_t holder_id = 0;
    CallId hold = 0;
    Epoch fence = 0;
    Epoch epoch = 0;  // the one it is in, or is about to join; 0 = none
    bool joined = false;
    bool warm = false;
    uint64_t router_id = 0;
    CallId join = 0;
    // Steps that came and are not answered.
    std::vector<std::pair<StepNumber, CallId>> owed;
    // -- Of faults
    std::vector<Action> pending;
    // What it will be after its next death.
    uint32_t next_blocks = 0;
    bool next_other_model = false;
    int64_t restart_us = -1;
    bool untold = false;
  };
  class Restarter;

  // -- WireServer
  bool Listens(Rank rank) override;
  void OnSent(Rank rank, ShardCall call, const ShardCallTag& tag) override;
  void OnCall(CallId id, Rank rank, ShardCall call, const ShardCallTag& tag,
              const SharedBytes& request) override;
  void OnDelivered(Rank rank, ShardCall call, const ShardCallTag& tag, bool ok) override;
  void OnDisconnected(Rank rank) override;

  void OnTime(uint32_t kind, uint64_t value) override;
  void Begin(Rank rank);
  void Die(Rank rank);
  void OnRestartAsked(Rank rank, uint64_t pid);

  // -- Calls
  void Info(CallId id, const Process& process, Rank rank);
  void Hold(CallId id, Process* process, const SharedBytes& request);
  void Rendezvous(CallId id, Process* process, Rank rank, const SharedBytes& request);
  void Join(CallId id, Process* process, Rank rank, const SharedBytes& request);
  void LeaveGroup(CallId id, Process* process, Rank rank, const SharedBytes& request);
  void Warmup(CallId id, Process* process, const SharedBytes& request);
  void Step(CallId id, Rank rank, ShardCall call, const ShardCallTag& tag,
            const SharedBytes& request);
  void MaskRows(CallId id, Rank rank, const ShardCallTag& tag, const SharedBytes& request);
  // The step waits for masks since kMaskWaitUsMax: it is given up, which has to have a cause.
  void MasksLate(StepNumber step);
  // The process is in no epoch any more.
  void Leave(Process* process, Rank rank);
  void PlanStep();
  void EndStep();
  void Answer(Rank rank, CallId id, const weft::shard::v1::StepResponse& response);
  // The fault of this kind that is due with an answer of `process`.
  bool TakeFault(Process* process, Kind kind, Action* fault);
  void TellLie(const Action& fault, Rank rank, weft::shard::v1::StepResponse* response,
               std::string* body);

  // With draws of its own.
  const Settings settings_;
  VirtualTime* const time_;
  Watch* const watch_;
  Wire wire_;
  Draws draws_;
  std::vector<Process> processes_;
  std::unique_ptr<FakeEpoch> epoch_;
  bool step_planned_ = false;
  // All of the next step has been done but for its sampling, since then; 0 = no.
  int64_t masks_wait_us_ = 0;
  // An answer of the epoch was lost on the way, or said that it was another's: the router may wait
  // for it.
  bool answer_lost_ = false;
  int64_t device_free_us_ = 0;
  int64_t last_step_us_ = 0;
  // Calls other than steps to each rank in this second.
  std::vector<uint32_t> calls_;
  int64_t second_ = 0;
  // Rank 0's answers of the epoch that have come to the router.
  StepNumber delivered_ = 0;
  std::function<void(ShardDeath)> on_death_;
  uint64_t next_pid_;
};

}  // namespace weft::router::sim

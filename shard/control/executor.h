// The shard's state machine: LOADING -> READY -> JOINED -> READY ..., or FAILED. It orders the
// step calls of an epoch, prepares them on the step thread, runs them on the device thread and
// hands the answers back. Owned by main; its public functions are called by RPC threads, never
// block on the device and answer through their `done`. Knows no gRPC.
//
//   RPC thread --StepOrder--> step thread --prepared--> device thread --results--> step thread
//
// The step thread prepares step k + 1 while the device thread runs k, so that the device never
// waits for the host. An epoch is one shared EpochState: what still holds an old one finds it
// ending and drops its work.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/thread.h"
#include "shard/comm/group_meeting.h"
#include "shard/control/mask_window.h"
#include "shard/control/membership.h"
#include "shard/control/probe.h"
#include "shard/control/step_inputs.h"
#include "shard/control/step_order.h"
#include "shard/device/model_runner.h"
#include "shard/heartbeat.h"
#include "shard/step_batch.h"
#include "shard/weights/loader.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

struct ExecutorOptions {
  Rank rank = 0;
  uint32_t world = 1;
  // The ranks have so long to meet; the runner then begins the epoch in a time of its own.
  absl::Duration join_timeout = absl::Microseconds(kMeetUsMax);
  // Longest wait for another rank in a collective.
  absl::Duration peer_timeout = absl::Seconds(30);
  // A device thread not idle this long after LeaveGroup, and after what was launched should have
  // ended (ModelRunner::work_left_us), is stuck.
  absl::Duration leave_timeout = absl::Microseconds(kLeaveIdleUs);
  // Nice value of the device thread: compute stands behind the router.
  int device_nice = 0;
  // Called once when the device thread is stuck (by the step thread) or the device is lost (by the
  // device thread); must end the process.
  std::function<void(const std::string& why)> on_stuck;
  // Called once when a warm-up found the model broken, after its callers were answered: no other
  // attempt would end better. Device thread. May be null.
  std::function<void(const std::string& why)> on_broken_model;
  const Clock* clock = &MonotonicClock();
  // May be null.
  ShardProbe* probe = nullptr;
};

// Parameters of the whole model that tokens are multiplied with: all but an embedding that is only
// looked up.
struct MatrixParameters {
  uint64_t all = 0;
  // Of those, the ones of experts, of which a token takes experts_taken of `experts`.
  uint64_t of_experts = 0;
  uint32_t experts = 0;
  uint32_t experts_taken = 0;
};

// What loading made.
struct LoadedModel {
  std::unique_ptr<ModelRunner> runner;
  // Everything of Info that does not change any more.
  v1::InfoResponse facts;
  // kv_blocks is filled in by Warmup.
  StepLimits limits;
  MatrixParameters matrices;
  // How this rank meets the others.
  std::unique_ptr<GroupMeeting> meeting;
  // Instruction set in use now; any thread.
  std::function<std::string()> isa;
};

// What is launched when the epoch of a whole group ends has so long to end by itself.
inline constexpr absl::Duration kPausePatience = absl::Milliseconds(300);

class Executor {
 public:
  // Called exactly once, on any thread, under no lock.
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // Starts in LOADING. `facts`: what Info can say before the model is loaded. `progress` outlives
  // the executor.
  Executor(ExecutorOptions options, v1::InfoResponse facts, const LoadProgress& progress);
  // Shutdown(), if it was not called.
  ~Executor();

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // LOADING -> READY.
  void SetReady(LoadedModel model);
  // -> FAILED; Info says why.
  void SetFailed(const absl::Status& why);

  // Answered from memory.
  void Info(v1::InfoResponse* response) const;
  // A router's claim. `done` is called when it is refused, released or taken over, or by EndHold.
  // Returns what EndHold names it by.
  uint64_t Hold(const v1::HoldRequest& request, Done done);
  // The call of that claim is over, by its connection's end too. Nothing when it was answered.
  void EndHold(uint64_t number);
  absl::Status Rendezvous(const v1::RendezvousRequest& request, v1::RendezvousResponse* response);
  void JoinGroup(const v1::JoinGroupRequest& request, Done done);
  void LeaveGroup(const v1::LeaveGroupRequest& request, Done done);
  // `response` lives until `done`.
  void Warmup(const v1::WarmupRequest& request, v1::WarmupResponse* response, Done done);
  void Step(StepCall call);
  // Hands in masks of a step that has been sent or will be.
  absl::Status MaskRows(const v1::MaskRowsRequest& request);

  // Refuses new steps, lets the step in hand finish for up to `drain`, ends the epoch and both
  // threads. Blocks. Idempotent. Main thread.
  void Shutdown(absl::Duration drain);

 private:
  // The life of the group as this rank sees it; guarded by mutex_ but for `inputs`.
  struct EpochState {
    explicit EpochState(Heartbeat* heartbeat) : masks(heartbeat) {}

    Epoch number = 0;
    uint64_t router_id = 0;
    // The runner has begun it.
    bool joined = false;
    // No new work; the device thread will end it.
    bool ending = false;
    // It ends with the group whole: its communicator may be kept, and what runs is aborted only
    // when it has not ended by itself until abort_at.
    bool pauses = false;
    absl::Time abort_at;
    // First error of a step; no later one runs.
    absl::Status broken;
    std::optional<v1::WarmupResponse> warmup;
    StepOrder order;
    MaskWindow masks;
    // Made by Warmup, then touched by the step thread alone.
    std::unique_ptr<StepInputs> inputs;
  };

  struct PendingJoin {
    std::shared_ptr<EpochState> epoch;
    std::string token;
    // Not 0: go on with the communicator of this epoch.
    Epoch kept_epoch = 0;
    std::string isa;
    absl::Time deadline;
    Done done;
  };

  struct WarmupCall {
    v1::WarmupResponse* response;
    Done done;
  };

  // The claim that is granted, until its call is answered.
  struct HoldCall {
    uint64_t number;
    Done done;
  };

  // A step between preparation and answer.
  struct PreparedStep {
    std::shared_ptr<EpochState> epoch;
    StepCall call;
    StepBatch batch;
    uint32_t host_us = 0;
    uint32_t queue_us = 0;
    absl::Status launch_status;
    absl::StatusOr<StepResult> result = absl::UnknownError("not run");
  };

  enum class Job : uint8_t { kNone, kEnd, kJoin, kWarmup, kLaunch, kSample, kTake };

  // Calls to make once the lock is released.
  using Answers = std::vector<std::pair<Done, absl::Status>>;
  static void Send(Answers answers);

  // -- RPC side (executor.cc) ----------------------------------------------------------------
  absl::Status CheckLoaded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The current epoch is `number`, joined and going on.
  absl::Status CheckCurrent(Epoch number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AdmitJoin(const v1::JoinGroupRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the claim that is granted, if one is; its call is answered with `why`.
  void ReleaseHold(const absl::Status& why, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails what waits and, unless the epoch pauses, aborts what runs; the device thread does the
  // rest.
  void BeginEnd(const absl::Status& why, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The current epoch serves and nothing in it has failed.
  bool CanPause() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A step failed: those that wait to be prepared are refused with it.
  void Break(EpochState& epoch, StepNumber step, const absl::Status& why, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailWaiting(EpochState& epoch, const absl::Status& why, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailPrepared(const absl::Status& why, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AbortDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When the device thread must be idle if its epoch ends now.
  absl::Time IdleBy() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- Step thread (executor_threads.cc) -----------------------------------------------------
  void StepLoop();
  bool CanPrepare() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PrepareNext() ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives a prepared step the masks that its rows wait for, if any do.
  static absl::Status TakeMasks(EpochState& epoch, StepBatch* batch);
  void Answer(PreparedStep step) ABSL_LOCKS_EXCLUDED(mutex_);

  // -- Device thread (executor_threads.cc) ---------------------------------------------------
  void DeviceLoop();
  Job NextJob() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunJoin() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Join(PendingJoin& join) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops what the runner keeps of another epoch. FAILED_PRECONDITION: it is not what is asked for.
  absl::Status TakeKept(Epoch wanted) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunWarmup() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunLaunch() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunSample() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTake() ABSL_LOCKS_EXCLUDED(mutex_);
  // The oldest launched step ended in `result`; the step thread answers it.
  void FinishStep(absl::StatusOr<StepResult> result) ABSL_LOCKS_EXCLUDED(mutex_);

  const ExecutorOptions options_;
  const LoadProgress& progress_;
  const int64_t load_begin_us_;
  Heartbeat heartbeat_;

  mutable absl::Mutex mutex_;
  absl::CondVar device_wake_;
  absl::CondVar step_wake_;

  v1::ShardState state_ ABSL_GUARDED_BY(mutex_) = v1::SHARD_STATE_LOADING;
  v1::InfoResponse facts_ ABSL_GUARDED_BY(mutex_);
  int64_t load_elapsed_us_ ABSL_GUARDED_BY(mutex_) = 0;
  // Written once by SetReady, before any epoch; the device thread then calls the runner.
  LoadedModel model_;
  // The device thread's: how the last join ended.
  absl::Status join_fault_;
  bool loaded_ ABSL_GUARDED_BY(mutex_) = false;

  GroupMembership membership_ ABSL_GUARDED_BY(mutex_);
  std::optional<HoldCall> hold_ ABSL_GUARDED_BY(mutex_);
  uint64_t holds_made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<EpochState> current_ ABSL_GUARDED_BY(mutex_);
  // The epoch whose communicator the runner keeps; 0 = none.
  Epoch kept_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  // Waits for current_ to end.
  std::optional<PendingJoin> pending_join_ ABSL_GUARDED_BY(mutex_);
  std::vector<Done> leave_calls_ ABSL_GUARDED_BY(mutex_);
  // When current_ must have ended; infinite unless it is ending.
  absl::Time leave_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::vector<WarmupCall> warmup_calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<PreparedStep> prepared_ ABSL_GUARDED_BY(mutex_);
  // What the device has; only the device thread adds and removes, and uses the batches unlocked.
  std::deque<PreparedStep> launched_ ABSL_GUARDED_BY(mutex_);
  std::vector<PreparedStep> results_ ABSL_GUARDED_BY(mutex_);
  // Batches whose vectors are used again.
  std::vector<StepBatch> spare_batches_ ABSL_GUARDED_BY(mutex_);
  // Ranks are meeting for current_; the runner has no communicator yet.
  bool meeting_ ABSL_GUARDED_BY(mutex_) = false;
  // What the device thread is doing.
  Job device_job_ ABSL_GUARDED_BY(mutex_) = Job::kNone;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_device_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_step_ ABSL_GUARDED_BY(mutex_) = false;

  Thread step_thread_;
  Thread device_thread_;
};

}  // namespace weft::shard

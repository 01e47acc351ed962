// The computing half of a shard as its protocol half sees it: one device that runs steps. Owned by
// the executor and called by the device thread only, except where noted. Knows nothing of the wire;
// implemented by shard/device/cpu and shard/device/cuda.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shard/comm/communicator.h"
#include "shard/expert_load.h"
#include "shard/step_batch.h"

namespace weft::shard {

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Begins an epoch on this communicator: no slots, no last tokens. `isa` empty = own choice.
  virtual absl::Status BeginEpoch(std::unique_ptr<Communicator> communicator,
                                  const std::string& isa) = 0;
  // Runs the steps that load what is loaded late and times small shapes. Once an epoch. DATA_LOSS
  // when these give logits that are no numbers: the model is broken, and stays so.
  virtual absl::StatusOr<WarmupResult> Warmup() = 0;
  // Runs one step: drops, starts, forward, sampling, for which it waits until the masks have
  // settled. Any error ends the epoch.
  virtual absl::StatusOr<StepResult> Run(const StepBatch& batch) = 0;

  // The same in two halves, for devices that work while the host prepares (invariant ahead.two).
  // Up to launches_max() steps may be launched and not taken; results are taken in order. Without
  // such a device Take does all the work.
  virtual uint32_t launches_max() const { return 1; }
  // Begins a step. `batch` stays as it is until the step is taken or the epoch has ended.
  virtual absl::Status Launch(const StepBatch& batch) {
    launched_ = &batch;
    return absl::OkStatus();
  }
  // The step launched last has masks and has not sampled yet: LaunchSampling is to be called once
  // these have settled, and nothing is to be launched before. Never where Take does the work.
  virtual bool sampling_due() const { return false; }
  virtual absl::Status LaunchSampling() { return absl::OkStatus(); }
  // The oldest launched step has ended, well or badly: Take will not wait. Never blocks.
  virtual bool Ready() { return true; }
  // The result of the oldest launched step; waits for it. REQUIRES: one is launched.
  virtual absl::StatusOr<StepResult> Take() { return Run(*launched_); }
  // How much longer the device may work on what is launched without looking hung, in microseconds;
  // 0 when nothing is launched, when it is over due, and where Take does the work. Any thread.
  virtual int64_t work_left_us() const { return 0; }
  // Not OK: the device is lost to this process, which must end (a device error stays). Device
  // thread, after any of the calls above.
  virtual absl::Status device_status() const { return absl::OkStatus(); }
  // Ends the epoch: waits for launched steps, forgets all slots, drops the communicator. Weights
  // and KV pool stay. Also drops what PauseEpoch kept.
  virtual void EndEpoch() = 0;

  // A communicator takes long to make here, so PauseEpoch may be called. Any thread.
  virtual bool keeps_communicators() const { return false; }
  // Ends the epoch of a group whose ranks are all well: waits up to `patience` for launched steps
  // to end by themselves, forgets all slots, and keeps the communicator for ResumeEpoch. False: the
  // epoch has ended as by EndEpoch, because a step did not end well or in time.
  virtual bool PauseEpoch(absl::Duration /*patience*/) {
    EndEpoch();
    return false;
  }
  // Begins an epoch on the communicator that PauseEpoch kept. REQUIRES: that was the last call, and
  // every rank makes this one.
  virtual absl::Status ResumeEpoch() {
    return absl::FailedPreconditionError("this device keeps no communicator");
  }

  // Aborts the wait in progress, if any. Any thread.
  virtual void Abort() = 0;

  // What MemoryFlags::expert_load counts; null where it was not asked for and in a model without
  // experts. Any thread, once the runner is made.
  virtual std::shared_ptr<ExpertLoad> expert_load() const { return nullptr; }

 private:
  const StepBatch* launched_ = nullptr;
};

}  // namespace weft::shard

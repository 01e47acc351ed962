// The model runner of a GPU as its two halves see it: runner.cc loads, launches and
// takes steps, warmup.cc makes the steps of a warm-up. Nobody else includes this.

#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/limits.h"
#include "shard/comm/nccl_communicator.h"
#include "shard/device/cuda/expert_counts.h"
#include "shard/device/cuda/graph_cache.h"
#include "shard/device/cuda/ops.h"
#include "shard/device/cuda/peer_sum.h"
#include "shard/device/cuda/runner.h"
#include "shard/model/step_allowance.h"

namespace weft::shard {

class CudaModelRunnerImpl : public CudaModelRunner {
 public:
  CudaModelRunnerImpl(const CudaRunnerOptions& options, const DecoderSpec& spec,
                      const SlicePlan& slice)
      : options_(options), spec_(spec), slice_(slice), allowance_(spec, slice.world) {}
  ~CudaModelRunnerImpl() override;

  // Plans shapes and memory; called before Load.
  absl::Status Plan();
  absl::Status Load(ModelFiles& files, LoadProgress& progress, const std::atomic<bool>& cancel);

  absl::Status BeginEpoch(std::unique_ptr<Communicator> communicator,
                          const std::string& isa) override;
  absl::StatusOr<WarmupResult> Warmup() override;
  absl::StatusOr<StepResult> Run(const StepBatch& batch) override;
  uint32_t launches_max() const override { return kStepsInFlightMax; }
  absl::Status Launch(const StepBatch& batch) override;
  bool sampling_due() const override { return sampling_due_; }
  absl::Status LaunchSampling() override;
  bool Ready() override;
  absl::StatusOr<StepResult> Take() override;
  int64_t work_left_us() const override;
  absl::Status device_status() const override { return device_status_; }
  void EndEpoch() override;
  bool keeps_communicators() const override { return slice_.world > 1; }
  bool PauseEpoch(absl::Duration patience) override;
  absl::Status ResumeEpoch() override;
  void Abort() override;

  std::shared_ptr<ExpertLoad> expert_load() const override { return expert_counts_; }
  const MemoryPlan& memory() const override { return plan_; }
  std::unique_ptr<GroupMeeting> MakeMeeting() const override {
    return MakeNcclMeeting(options_.device.index);
  }

 private:
  // A step between Launch and Take.
  struct InFlight {
    const StepBatch* batch = nullptr;
    // Which of the event pairs and result buffers it uses.
    uint32_t buffers = 0;
    bool logprobs = false;
    // What it may take, and since when: the end of the step before, or its launch.
    int64_t allowed_us = 0;
    int64_t since_us = 0;
  };
  // What a step in flight owns.
  struct StepBuffers {
    CudaEvent begin;
    CudaEvent end;
    PinnedBuffer results;
    PinnedBuffer masks;
    PinnedBuffer scores;
    // Of each sampled row: 1 + top_logprobs where log-probabilities are wanted, else 0. (Its slot
    // may have another sequence when the step is taken.)
    std::vector<uint32_t> wanted_logprobs;
  };

  // The planned one; says what is free when that is too little (invariant mem.plan).
  absl::Status TakePool();
  // The steps of Warmup().
  absl::StatusOr<WarmupResult> RunWarmup();
  // CUDA has a current device for each thread. Costs next to nothing when it is this one already.
  absl::Status UseDevice() const;
  // Errors of the device stay; what other ranks caused, what a step asked wrongly and what a model
  // makes of it ends the epoch only.
  absl::Status Lost(absl::Status status);
  // An error of the device, whatever its code.
  absl::Status DeviceLost(absl::Status status);
  // Takes what is launched as it ends, until `deadline`. An error: a step has not ended, or not
  // well.
  absl::Status TakeLaunched(absl::Time deadline);
  // This rank's memory to the others and theirs to it, where that is possible.
  absl::Status ConnectPeers();
  absl::Status LaunchForward(const StepBatch& batch);
  // What is behind the sampler of a step that has one: its results to the host.
  absl::Status FinishLaunch(InFlight* step);
  // The front step begins, or nothing is launched any more.
  void BeginFront(int64_t now_us);
  // Why a step has not ended in its time.
  absl::Status NotEnded(const InFlight& step);
  absl::Status CopyResults(const InFlight& step);
  // The part of the step's results that lies at `on_device` in the workspace.
  template <typename T>
  const T* Result(const InFlight& step, const T* on_device) const {
    const ptrdiff_t offset = reinterpret_cast<const uint8_t*>(on_device) -
                             reinterpret_cast<const uint8_t*>(workspace_.sum_status);
    return reinterpret_cast<const T*>(step_buffers_[step.buffers].results.data() + offset);
  }
  void ReadResults(const InFlight& step, StepResult* result) const;
  void ReadScores(const InFlight& step, StepScores* scores) const;
  void ReadLogprobs(const InFlight& step, uint32_t row, StepResult* result) const;
  // `rows` sequences in slots 0 .. rows - 1, each with `tokens` new tokens from `start` on.
  StepBatch MakeBatch(uint32_t rows, uint32_t tokens, uint32_t start, bool decode) const;
  absl::Status TimeShape(uint32_t rows, uint32_t tokens, uint32_t start, bool decode,
                         WarmupResult* result);
  absl::Status CaptureGraphs();
  // Some rank has been through a warm-up before: this epoch is a recovery.
  absl::StatusOr<bool> AnyRankIsWarm();
  absl::Status WaitForStream();

  const CudaRunnerOptions options_;
  const DecoderSpec spec_;
  const SlicePlan slice_;
  CudaShape shape_;
  CudaLimits limits_;
  MemoryPlan plan_;

  CudaStream stream_;
  std::unique_ptr<CudaWeights> weights_;
  CudaWorkspace workspace_;
  // Of the workspace; null: rows of experts are not counted.
  std::shared_ptr<CudaExpertCounts> expert_counts_;
  CudaKvCache kv_;
  // With more than one rank.
  std::unique_ptr<PeerSum> peer_sum_;
  std::unique_ptr<CudaOps> ops_;
  GraphCache graphs_;

  std::array<StepBuffers, kStepsInFlightMax> step_buffers_;
  std::deque<InFlight> in_flight_;
  // The last of them has not been sampled.
  bool sampling_due_ = false;
  StepAllowance allowance_;
  // When all that is launched should have ended; 0: nothing is launched.
  std::atomic<int64_t> work_until_us_{0};
  uint32_t next_buffers_ = 0;
  absl::Status device_status_;
  // Written by the device thread; Abort reads the pointer on any thread.
  std::mutex mutex_;
  std::unique_ptr<NcclCommunicator> communicator_;
  WarmupResult warmup_;
};

}  // namespace weft::shard

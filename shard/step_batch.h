// One step, ready for the device, and what comes back: the boundary between the protocol half of
// the shard (step_service, executor, step_inputs) and the computing half (model_runner). Plain
// data; made by the step thread, consumed by the device thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "shard/comm/communicator.h"

namespace weft::shard {

// As weft.shard.v1.SamplingParams.
struct SamplingParams {
  float temperature = 0.0f;
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  bool logprobs = false;
  uint32_t top_logprobs = 0;

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

// A sequence that enters the device with this step: its sampling state begins.
struct SequenceStart {
  Slot slot = 0;
  SequenceId sequence = 0;
  uint32_t prompt_len = 0;
  SamplingParams sampling;
  // All known ids from position 0, only with penalties.
  std::vector<TokenId> penalty_ids;
};

// Rows of one sequence in the flat token batch.
struct StepSequence {
  Slot slot = 0;
  SequenceId sequence = 0;
  // Range in StepBatch::ids.
  uint32_t token_begin = 0;
  uint32_t token_count = 0;
  // Position of the first token; the context after the step is start + token_count.
  Position start = 0;
  // The sequence's block table: covers positions 0 .. start + token_count - 1. Range in
  // StepBatch::block_ids.
  uint32_t block_begin = 0;
  uint32_t block_count = 0;
  // The one id is the token this slot sampled last; it lives on the device (ids[token_begin] is
  // kNoToken).
  bool from_last_sample = false;
  // A token is sampled after the last row.
  bool sample = false;
};

struct StepBatch {
  Epoch epoch = 0;
  StepNumber step = 0;
  // Slots whose device state ends before this step.
  std::vector<Slot> drops;
  std::vector<SequenceStart> starts;
  std::vector<TokenId> ids;
  // Decode rows in ascending slot order, then chunks in request order.
  std::vector<StepSequence> sequences;
  std::vector<BlockId> block_ids;
};

struct SampledLogprobs {
  uint32_t row = 0;
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;
};

// What the device thread's compute helpers cost a step.
struct HelperCosts {
  // Spent waiting for items that helpers held; of these waits, how many were stalls.
  uint64_t wait_us = 0;
  uint64_t stalls = 0;
  // Times the device thread went on alone for a while because of them.
  uint64_t backoffs = 0;
};

struct StepResult {
  // One per StepSequence with `sample`, in order. The same on all ranks.
  std::vector<Slot> slots;
  std::vector<TokenId> ids;
  std::vector<SampledLogprobs> logprobs;
  uint32_t device_us = 0;
  uint32_t comm_us = 0;
  uint32_t weight_passes = 0;
  HelperCosts helpers;
};

struct WarmupResult {
  uint32_t kv_blocks = 0;
  struct Cost {
    uint32_t rows;
    uint32_t prompt_tokens;
    uint64_t context_tokens;
    uint32_t step_us;
  };
  std::vector<Cost> costs;
};

// The computing half. Called by the device thread only, except where noted.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Begins an epoch on this communicator: no slots, no last tokens. `isa` empty = own choice.
  virtual absl::Status BeginEpoch(std::unique_ptr<Communicator> communicator,
                                  const std::string& isa) = 0;
  // Runs the steps that load what is loaded late and times small shapes. Once an epoch.
  virtual absl::StatusOr<WarmupResult> Warmup() = 0;
  // Runs one step: drops, starts, forward, sampling. Any error ends the epoch.
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
  // and KV pool stay.
  virtual void EndEpoch() = 0;

  // Aborts the wait in progress, if any. Any thread.
  virtual void Abort() = 0;

 private:
  const StepBatch* launched_ = nullptr;
};

}  // namespace weft::shard

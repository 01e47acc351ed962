// The steps that a CUDA shard runs before it serves: they load what libraries load late, capture
// the graphs and give the scheduler its first costs.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/status.h"
#include "kernels/cuda/kv.h"
#include "shard/device/cuda/runner_impl.h"
#include "shard/device/cuda/runtime/status.h"
#include "shard/device/forward.h"
#include "shard/model/warmup_batch.h"

namespace weft::shard {
namespace {

constexpr uint32_t kShortPrompt = 512;
// What a warm-up waits for at least, also where steps get no time beyond their allowance.
constexpr int64_t kWaitUsMin = 1'000'000;

}  // namespace

StepBatch CudaModelRunnerImpl::MakeBatch(uint32_t rows, uint32_t tokens, uint32_t start,
                                         bool decode) const {
  return MakeWarmupBatch({rows, tokens, start, decode},
                         {kernels::cuda::kKvBlockTokens, kv_.blocks(), kv_.groups()});
}

absl::Status CudaModelRunnerImpl::TimeShape(uint32_t rows, uint32_t tokens, uint32_t start,
                                            bool decode, WarmupResult* result) {
  const StepBatch batch = MakeBatch(rows, tokens, start, decode);
  uint32_t fastest_us = ~0u;
  // The first loads what is loaded late. Of long steps one more tells enough.
  const int runs = rows * tokens > kShortPrompt ? 2 : 3;
  for (int i = 0; i < runs; ++i) {
    WEFT_ASSIGN_OR_RETURN(const StepResult timed, Run(batch));
    if (start == 0) WEFT_RETURN_IF_ERROR(CheckWarmupResult(timed));
    fastest_us = std::min(fastest_us, timed.device_us);
  }
  if (!decode) allowance_.Learn(batch, fastest_us);
  result->costs.push_back({decode ? rows : 0, decode ? 0 : rows * tokens,
                           uint64_t{rows} * (start + tokens), fastest_us});
  return absl::OkStatus();
}

absl::Status CudaModelRunnerImpl::CaptureGraphs() {
  if (limits_.deterministic) return absl::OkStatus();
  const uint32_t rows_max = std::min(limits_.running_max, GraphCache::kRowsMax);
  StepResult unused;
  for (uint32_t rows = 1; rows <= rows_max; rows = GraphCache::Bucket(rows + 1)) {
    // Captured, not run: together these steps would take longer than all the rest of a warm-up.
    const StepBatch batch = MakeBatch(rows, 1, 0, /*decode=*/true);
    WEFT_RETURN_IF_ERROR(ops_->BeginSequences(batch));
    WEFT_RETURN_IF_ERROR(ops_->BeginStep(batch, GraphCache::Bucket(rows)));
    WEFT_RETURN_IF_ERROR(graphs_.Capture(ops_->shape().rows, stream_.get(),
                                         [&] { return WalkPlan(*ops_, &unused); }));
    // The host's copy of the inputs is written again by the step after the next.
    WEFT_RETURN_IF_ERROR(WaitForStream());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaModelRunnerImpl::AnyRankIsWarm() {
  const bool warm = warmup_.kv_blocks > 0;
  if (slice_.world == 1) return warm;
  // The logits' memory is free between steps.
  const float mine = warm ? 1.0f : 0.0f;
  float* const word = workspace_.logits;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(word, &mine, sizeof(mine), cudaMemcpyHostToDevice, stream_.get()),
                 "copy of a word"));
  WEFT_RETURN_IF_ERROR(communicator_->AllGather(word, 1, workspace_.gathered, stream_.get()));
  WEFT_RETURN_IF_ERROR(WaitForStream());
  std::vector<float> all(slice_.world);
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemcpy(all.data(), workspace_.gathered,
                                             all.size() * sizeof(float), cudaMemcpyDeviceToHost),
                                  "copy of the ranks' words"));
  return std::find(all.begin(), all.end(), 1.0f) != all.end();
}

absl::Status CudaModelRunnerImpl::WaitForStream() {
  WEFT_ASSIGN_OR_RETURN(
      const cudaError_t state,
      communicator_->AwaitDevice(
          [this] { return cudaStreamQuery(stream_.get()); },
          absl::Now() + absl::Microseconds(std::max<int64_t>(options_.step_timeout_us, kWaitUsMin)),
          "not all ranks came to the warm-up"));
  return Lost(CudaStatus(state, "warm-up"));
}

absl::StatusOr<WarmupResult> CudaModelRunnerImpl::Warmup() {
  absl::StatusOr<WarmupResult> result = RunWarmup();
  // What cannot run here now never will: another attempt would not end either.
  WEFT_RETURN_IF_ERROR(Lost(result.status()));
  return result;
}

absl::StatusOr<WarmupResult> CudaModelRunnerImpl::RunWarmup() {
  WEFT_RETURN_IF_ERROR(UseDevice());
  // Ranks must do the same, also where only one of them is new.
  WEFT_ASSIGN_OR_RETURN(const bool recovery, AnyRankIsWarm());
  if (recovery && slice_.world == 1) return warmup_;
  // Rows of the steps below are nobody's.
  WEFT_RETURN_IF_ERROR(ops_->CountExperts(false));
  WarmupResult result;
  result.kv_blocks = plan_.kv_blocks;
  // Not cut to the pool: ranks with more KV heads have fewer blocks, and all run the same steps.
  const uint32_t prompt = std::min(limits_.step_tokens_max, limits_.context_tokens);
  const uint32_t short_prompt = std::min(prompt, kShortPrompt);
  // Streams wait in a recovery: graphs are captured by use.
  if (!recovery) {
    // The largest prompt first: it loads what the libraries load late.
    WEFT_RETURN_IF_ERROR(TimeShape(1, prompt, 0, false, &result));
    WEFT_RETURN_IF_ERROR(CaptureGraphs());
    WEFT_RETURN_IF_ERROR(
        TimeShape(options_.memory.running_max, 1, short_prompt - 1, true, &result));
  }
  WEFT_RETURN_IF_ERROR(TimeShape(1, short_prompt, 0, false, &result));
  WEFT_RETURN_IF_ERROR(TimeShape(1, 1, short_prompt - 1, true, &result));
  ops_->Reset();
  WEFT_RETURN_IF_ERROR(ops_->CountExperts(true));
  if (warmup_.kv_blocks == 0) warmup_ = std::move(result);
  return warmup_;
}

}  // namespace weft::shard

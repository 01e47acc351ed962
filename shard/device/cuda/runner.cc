#include "shard/device/cuda/runner.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status.h"
#include "common/thread.h"
#include "kernels/cuda/attention/decode_attention.h"
#include "shard/device/cuda/memory_plan.h"
#include "shard/device/cuda/planning.h"
#include "shard/device/cuda/runner_impl.h"
#include "shard/device/cuda/runtime/nvtx.h"
#include "shard/device/cuda/runtime/status.h"
#include "shard/device/forward.h"

namespace weft::shard {
namespace {

using kernels::cuda::kSamplerTopLogprobsMax;

// Between two looks at a step that may end by itself.
constexpr absl::Duration kPausePoll = absl::Microseconds(50);

}  // namespace

CudaModelRunnerImpl::~CudaModelRunnerImpl() {
  // Buffers must outlive what still uses them, and graphs end before their communicator.
  if (communicator_ != nullptr) {
    EndEpoch();
  } else if (stream_.get() != nullptr) {
    cudaStreamSynchronize(stream_.get());
  }
  if (expert_counts_ != nullptr) expert_counts_->Detach();
}

absl::Status CudaModelRunnerImpl::UseDevice() const {
  return CudaStatus(cudaSetDevice(options_.device.index), "choosing the device");
}

absl::Status CudaModelRunnerImpl::Plan() {
  WEFT_RETURN_IF_ERROR(UseDevice());
  const MemoryFlags& flags = options_.memory;
  WEFT_ASSIGN_OR_RETURN(shape_, PlanCudaShape(spec_, slice_, flags));
  uint32_t decode_grid = 0;
  if (!shape_.latent) {
    const uint32_t group_max = LargestHeadGroup(shape_, slice_);
    WEFT_RETURN_IF_ERROR(
        CudaStatus(kernels::cuda::DecodeGrid(shape_.head_stride, group_max, &decode_grid),
                   "occupancy of decode attention"));
  }
  limits_ = PlanCudaLimits(spec_, shape_, slice_, flags, decode_grid);
  const bool wide = shape_.type == kernels::cuda::DType::kFloat32;
  if (limits_.deterministic && (slice_.world > 1 || wide)) {
    return absl::InvalidArgumentError(
        "--deterministic: served by one shard in bfloat16; sums over ranks and float32 products "
        "depend on the number of rows");
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "memory in use"));
  WEFT_ASSIGN_OR_RETURN(plan_, PlanCudaMemory(spec_, shape_, limits_, flags,
                                              {total_bytes, total_bytes - free_bytes}));
  return absl::OkStatus();
}

absl::Status CudaModelRunnerImpl::TakePool() {
  absl::StatusOr<CudaKvCache> pool = CudaKvCache::Create(shape_, plan_.kv_groups, plan_.kv_blocks);
  if (absl::IsResourceExhausted(pool.status())) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "memory in use"));
    return absl::ResourceExhaustedError(
        absl::StrCat("GPU ", options_.device.index, ": the KV pool takes ", plan_.kv_bytes >> 20,
                     " MiB and ", free_bytes >> 20,
                     " MiB are free: another process has taken memory since the plan was made; "
                     "stop it, or start with a --memory-fraction below ",
                     options_.memory.memory_fraction));
  }
  WEFT_RETURN_IF_ERROR(pool.status());
  kv_ = *std::move(pool);
  return absl::OkStatus();
}

absl::Status CudaModelRunnerImpl::Load(ModelFiles& files, LoadProgress& progress,
                                       const std::atomic<bool>& cancel) {
  WEFT_ASSIGN_OR_RETURN(stream_, MakeStream());
  WEFT_ASSIGN_OR_RETURN(weights_, CudaWeights::Create(spec_, shape_));
  WEFT_ASSIGN_OR_RETURN(workspace_, CudaWorkspace::Create(shape_, limits_));
  if (limits_.expert_load) {
    WEFT_ASSIGN_OR_RETURN(expert_counts_,
                          CudaExpertCounts::Create(spec_, workspace_.expert_counts));
  }
  // cuBLASLt takes as long to begin as the weights to be read.
  absl::StatusOr<std::unique_ptr<Gemm>> gemm = absl::UnknownError("not made");
  Thread gemm_thread("cublaslt", [this, &gemm] {
    const absl::Status device = UseDevice();
    gemm = device.ok() ? Gemm::Create(workspace_.gemm, CudaWorkspace::kGemmBytes) : device;
  });
  const int64_t begin_us = MonotonicClock().NowUs();
  if (files.random()) {
    // Every rank its own numbers: equal ones would tie the ranks' parts of the vocabulary.
    WEFT_RETURN_IF_ERROR(weights_->FillRandom(kRandomWeightsSeed + slice_.rank));
  } else {
    WEFT_RETURN_IF_ERROR(
        files.Load(slice_, static_cast<int>(options_.memory.threads), *weights_, progress, cancel));
  }
  WEFT_RETURN_IF_ERROR(weights_->Finish());
  if (!files.random()) {
    const double load_us = static_cast<double>(MonotonicClock().NowUs() - begin_us);
    const auto bytes = static_cast<double>(progress.bytes_done.load());
    WEFT_LOG_INFO("read {:.2f} GB of weights in {:.0f} ms, {:.1f} GB/s", bytes * 1e-9,
                  load_us * 1e-3, bytes * 1e-3 / load_us);
  }
  WEFT_RETURN_IF_ERROR(TakePool());
  if (slice_.world > 1 && shape_.type == kernels::cuda::DType::kBfloat16) {
    WEFT_ASSIGN_OR_RETURN(peer_sum_, PeerSum::Create(shape_.hidden));
  }
  gemm_thread.Join();
  WEFT_RETURN_IF_ERROR(gemm.status());
  WEFT_ASSIGN_OR_RETURN(ops_, CudaOps::Create({spec_, slice_, shape_, limits_, *weights_,
                                               workspace_, kv_, stream_.get(), options_.left_out},
                                              *std::move(gemm)));
  const uint64_t result_bytes = reinterpret_cast<uint8_t*>(workspace_.out_top_logprobs) -
                                reinterpret_cast<uint8_t*>(workspace_.sum_status) +
                                limits_.running_max * kSamplerTopLogprobsMax * sizeof(float);
  for (StepBuffers& buffers : step_buffers_) {
    WEFT_ASSIGN_OR_RETURN(buffers.begin, MakeEvent());
    WEFT_ASSIGN_OR_RETURN(buffers.end, MakeEvent());
    WEFT_ASSIGN_OR_RETURN(buffers.results, AllocatePinned(result_bytes, "results"));
    WEFT_ASSIGN_OR_RETURN(buffers.scores,
                          AllocatePinned(ScoreBuffers::Bytes(limits_.step_tokens_max), "scores"));
    WEFT_ASSIGN_OR_RETURN(buffers.masks, AllocatePinned(CudaOps::MaskBytes(limits_), "masks"));
  }
  return CudaStatus(cudaDeviceSynchronize(), "loading");
}

absl::Status CudaModelRunnerImpl::BeginEpoch(std::unique_ptr<Communicator> communicator,
                                             const std::string&) {
  WEFT_RETURN_IF_ERROR(UseDevice());
  WEFT_CHECK(communicator_ == nullptr);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // Made by MakeNcclMeeting.
    communicator_.reset(static_cast<NcclCommunicator*>(communicator.release()));
  }
  absl::Status connected = Lost(ConnectPeers());
  // The executor ends only what began; collectives of this attempt may still be on the stream.
  if (!connected.ok()) EndEpoch();
  return connected;
}

absl::Status CudaModelRunnerImpl::ConnectPeers() {
  const absl::Status connected =
      peer_sum_ == nullptr
          ? absl::FailedPreconditionError("float32 activations")
          : peer_sum_->Connect(*communicator_, stream_.get(), absl::Microseconds(kConnectUsMax),
                               workspace_.sum_status);
  if (absl::IsFailedPrecondition(connected)) {
    if (slice_.world > 1) {
      WEFT_LOG_WARN("sums over ranks go through NCCL alone: {}", std::string(connected.message()));
    }
    ops_->BeginEpoch(communicator_.get(), nullptr);
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(connected);
  ops_->BeginEpoch(communicator_.get(), peer_sum_.get());
  return absl::OkStatus();
}

void CudaModelRunnerImpl::EndEpoch() {
  Lost(UseDevice()).IgnoreError();
  // What waits for other ranks ends first, then the graphs that hold collectives, then NCCL's own
  // thread (which waits for such graphs).
  communicator_->BeginEnd();
  if (peer_sum_ != nullptr) peer_sum_->Abort();
  Lost(CudaStatus(cudaStreamSynchronize(stream_.get()), "the end of the epoch")).IgnoreError();
  if (slice_.world > 1) graphs_.Clear();
  communicator_->FinishEnd();
  if (peer_sum_ != nullptr) peer_sum_->Disconnect();
  in_flight_.clear();
  sampling_due_ = false;
  BeginFront(0);
  ops_->BeginEpoch(nullptr, nullptr);
  const std::lock_guard<std::mutex> lock(mutex_);
  communicator_.reset();
}

absl::Status CudaModelRunnerImpl::TakeLaunched(absl::Time deadline) {
  WEFT_RETURN_IF_ERROR(UseDevice());
  while (!in_flight_.empty()) {
    while (!Ready()) {
      if (absl::Now() > deadline) return absl::DeadlineExceededError("a step has not ended");
      if (communicator_->AbortedWithin(kPausePoll)) return absl::AbortedError("aborted");
    }
    WEFT_RETURN_IF_ERROR(Take().status());
  }
  return device_status_;
}

bool CudaModelRunnerImpl::PauseEpoch(absl::Duration patience) {
  // Every collective that this rank began has ended with those of the others. One that only another
  // rank began keeps that one from getting here.
  if (!TakeLaunched(absl::Now() + patience).ok() || !communicator_->Healthy()) {
    EndEpoch();
    return false;
  }
  ops_->Reset();
  return true;
}

absl::Status CudaModelRunnerImpl::ResumeEpoch() {
  WEFT_CHECK(communicator_ != nullptr);
  absl::Status device = UseDevice();
  if (!device.ok()) EndEpoch();
  return device;
}

void CudaModelRunnerImpl::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ != nullptr) communicator_->Abort();
  if (peer_sum_ != nullptr) peer_sum_->Abort();
}

absl::Status CudaModelRunnerImpl::Lost(absl::Status status) {
  // What other ranks did to this one, or did not do in time, and a step or a model that is not what
  // it should be, end the epoch, not the process: the device is well.
  if (absl::IsAborted(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsInvalidArgument(status) || absl::IsDataLoss(status)) {
    return status;
  }
  return DeviceLost(std::move(status));
}

absl::Status CudaModelRunnerImpl::DeviceLost(absl::Status status) {
  if (!status.ok() && device_status_.ok()) {
    device_status_ = Annotate(status, absl::StrCat("GPU ", options_.device.index));
  }
  return status;
}

absl::Status CudaModelRunnerImpl::LaunchForward(const StepBatch& batch) {
  const auto rows = static_cast<uint32_t>(batch.sequences.size());
  const bool decode_only = batch.sequences.back().from_last_sample;
  StepResult unused;
  if (!decode_only || rows > GraphCache::kRowsMax || limits_.deterministic) {
    return RunForward(batch, *ops_, &unused);
  }
  WEFT_RETURN_IF_ERROR(ops_->BeginStep(batch, GraphCache::Bucket(rows)));
  WEFT_RETURN_IF_ERROR(
      graphs_.Launch(ops_->shape().rows, stream_.get(), [&] { return WalkPlan(*ops_, &unused); }));
  return ops_->SampleAfterGraph();
}

absl::Status CudaModelRunnerImpl::CopyResults(const InFlight& step) {
  const StepBuffers& buffers = step_buffers_[step.buffers];
  uint64_t bytes = buffers.results.bytes();
  if (!step.logprobs) {
    bytes = static_cast<uint64_t>(
        reinterpret_cast<uint8_t*>(workspace_.out_ids + ops_->shape().sampled) -
        reinterpret_cast<uint8_t*>(workspace_.sum_status));
  }
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(buffers.results.data(), workspace_.sum_status,
                                                  bytes, cudaMemcpyDeviceToHost, stream_.get()),
                                  "copy of results"));
  const size_t scored = step.batch->targets.size();
  if (scored == 0) return absl::OkStatus();
  return CudaStatus(
      cudaMemcpyAsync(buffers.scores.data(), workspace_.scores, ScoreBuffers::Bytes(scored),
                      cudaMemcpyDeviceToHost, stream_.get()),
      "copy of scores");
}

absl::Status CudaModelRunnerImpl::Launch(const StepBatch& batch) {
  WEFT_CHECK_LT(in_flight_.size(), size_t{kStepsInFlightMax});
  const bool decodes = !batch.sequences.empty() && batch.sequences.back().from_last_sample;
  const NvtxRange range(batch.sequences.empty() ? "step: drops"
                        : decodes               ? "step: decode"
                                                : "step: prefill");
  WEFT_RETURN_IF_ERROR(UseDevice());
  const int64_t now_us = MonotonicClock().NowUs();
  InFlight step{&batch, next_buffers_, false, allowance_.AllowedUs(batch), now_us};
  // Before the first call: any of them may wait for the step in front.
  work_until_us_ = std::max(now_us, work_until_us_.load()) + step.allowed_us;
  next_buffers_ = (next_buffers_ + 1) % kStepsInFlightMax;
  const StepBuffers& buffers = step_buffers_[step.buffers];
  WEFT_RETURN_IF_ERROR(Lost(ops_->BeginSequences(batch)));
  WEFT_RETURN_IF_ERROR(
      Lost(CudaStatus(cudaEventRecord(buffers.begin.get(), stream_.get()), "begin of a step")));
  if (!batch.sequences.empty()) {
    WEFT_RETURN_IF_ERROR(Lost(LaunchForward(batch)));
  }
  sampling_due_ = batch.masks != nullptr;
  if (!sampling_due_) WEFT_RETURN_IF_ERROR(FinishLaunch(&step));
  in_flight_.push_back(step);
  return absl::OkStatus();
}

absl::Status CudaModelRunnerImpl::FinishLaunch(InFlight* step) {
  StepBuffers& buffers = step_buffers_[step->buffers];
  if (!step->batch->sequences.empty()) {
    step->logprobs = (ops_->shape().features & kernels::cuda::kSamplerLogprobs) != 0;
    if (step->logprobs) ops_->WantedLogprobs(*step->batch, &buffers.wanted_logprobs);
    WEFT_RETURN_IF_ERROR(Lost(CopyResults(*step)));
  }
  return Lost(CudaStatus(cudaEventRecord(buffers.end.get(), stream_.get()), "end of a step"));
}

absl::Status CudaModelRunnerImpl::LaunchSampling() {
  WEFT_CHECK(sampling_due_ && !in_flight_.empty());
  sampling_due_ = false;
  InFlight& step = in_flight_.back();
  WEFT_RETURN_IF_ERROR(UseDevice());
  WEFT_RETURN_IF_ERROR(
      Lost(ops_->SampleMasked(*step.batch, step_buffers_[step.buffers].masks.data())));
  // The time in which the device waited for masks is not its own.
  if (in_flight_.size() == 1) BeginFront(MonotonicClock().NowUs());
  return FinishLaunch(&step);
}

bool CudaModelRunnerImpl::Ready() {
  if (in_flight_.empty() || !device_status_.ok()) return true;
  // Its end is not even launched: it ends when its masks come, or with the epoch.
  if (sampling_due_ && in_flight_.size() == 1) return communicator_->aborted();
  const InFlight& step = in_flight_.front();
  if (cudaEventQuery(step_buffers_[step.buffers].end.get()) != cudaErrorNotReady) return true;
  if (communicator_->aborted()) return true;
  const int64_t worked_us = MonotonicClock().NowUs() - step.since_us;
  return worked_us > step.allowed_us + options_.step_timeout_us;
}

int64_t CudaModelRunnerImpl::work_left_us() const {
  const int64_t until_us = work_until_us_.load(std::memory_order_relaxed);
  return until_us == 0 ? 0 : std::max<int64_t>(until_us - MonotonicClock().NowUs(), 0);
}

void CudaModelRunnerImpl::BeginFront(int64_t now_us) {
  int64_t until_us = 0;
  if (!in_flight_.empty()) {
    in_flight_.front().since_us = until_us = now_us;
    for (const InFlight& step : in_flight_) until_us += step.allowed_us;
  }
  work_until_us_ = until_us;
}

absl::Status CudaModelRunnerImpl::NotEnded(const InFlight& step) {
  if (communicator_->aborted()) return absl::AbortedError("the epoch was aborted");
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat("step ", step.batch->step, " ran longer than ",
                   (step.allowed_us + options_.step_timeout_us) / 1000000, " s on the device"));
  // Alone it waits for nobody: the device hangs.
  return slice_.world == 1 ? DeviceLost(late) : late;
}

absl::StatusOr<StepResult> CudaModelRunnerImpl::Take() {
  if (in_flight_.empty()) return absl::InternalError("no step is launched");
  const NvtxRange range("results of a step");
  while (!Ready()) std::this_thread::yield();
  const InFlight step = in_flight_.front();
  in_flight_.pop_front();
  BeginFront(MonotonicClock().NowUs());
  const StepBuffers& buffers = step_buffers_[step.buffers];
  const cudaError_t ended = cudaEventQuery(buffers.end.get());
  if (ended == cudaErrorNotReady) return NotEnded(step);
  WEFT_RETURN_IF_ERROR(Lost(CudaStatus(ended, absl::StrCat("step ", step.batch->step))));
  if (!step.batch->sequences.empty()) {
    WEFT_RETURN_IF_ERROR(PeerSum::StatusOf(*Result(step, workspace_.sum_status)));
  }
  float step_ms = 0;
  cudaEventElapsedTime(&step_ms, buffers.begin.get(), buffers.end.get());
  StepResult result;
  result.device_us = static_cast<uint32_t>(step_ms * 1000);
  ReadResults(step, &result);
  return result;
}

absl::StatusOr<StepResult> CudaModelRunnerImpl::Run(const StepBatch& batch) {
  WEFT_RETURN_IF_ERROR(Launch(batch));
  if (sampling_due_) WEFT_RETURN_IF_ERROR(LaunchSampling());
  return Take();
}

void CudaModelRunnerImpl::ReadResults(const InFlight& step, StepResult* result) const {
  const uint32_t* const ids = Result(step, workspace_.out_ids);
  uint32_t row = 0;
  for (const StepSequence& sequence : step.batch->sequences) {
    if (!sequence.sample) continue;
    result->slots.push_back(sequence.slot);
    if ((ids[row] & kernels::cuda::kInvalidSampleBit) != 0) result->invalid_rows.push_back(row);
    result->ids.push_back(ids[row] & ~kernels::cuda::kInvalidSampleBit);
    if (step.logprobs) ReadLogprobs(step, row, result);
    ++row;
  }
  if (!step.batch->targets.empty()) ReadScores(step, &result->scores);
}

void CudaModelRunnerImpl::ReadScores(const InFlight& step, StepScores* scores) const {
  const size_t rows = step.batch->targets.size();
  const ScoreBuffers from = ScoreBuffers::At(step_buffers_[step.buffers].scores.data(), rows);
  scores->logprobs.assign(from.logprobs, from.logprobs + rows);
  scores->ranks.assign(from.ranks, from.ranks + rows);
  for (size_t row = 0; row < rows; ++row) {
    if ((from.ids[row] & kernels::cuda::kInvalidSampleBit) != 0) {
      scores->logprobs[row] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  for (const StepScoring& scoring : step.batch->scorings) {
    for (uint32_t i = 0; i < scoring.count * scoring.top; ++i) {
      const size_t row = size_t{scoring.begin} + i / scoring.top;
      const size_t at = row * kSamplerTopLogprobsMax + i % scoring.top;
      const bool none = from.top_ids[at] == kernels::cuda::kNoSampledToken;
      scores->top.emplace_back(none ? 0 : from.top_ids[at], from.top_logprobs[at]);
    }
  }
}

void CudaModelRunnerImpl::ReadLogprobs(const InFlight& step, uint32_t row,
                                       StepResult* result) const {
  const uint32_t wanted = step_buffers_[step.buffers].wanted_logprobs[row];
  if (wanted == 0) return;
  const uint32_t* const ids = Result(step, workspace_.out_top_ids);
  const float* const logprobs = Result(step, workspace_.out_top_logprobs);
  SampledLogprobs& out = result->logprobs.emplace_back();
  out.row = row;
  out.logprob = Result(step, workspace_.out_logprobs)[row];
  for (uint32_t i = 0; i + 1 < wanted; ++i) {
    const size_t at = size_t{row} * kSamplerTopLogprobsMax + i;
    if (ids[at] != kernels::cuda::kNoSampledToken) out.top.emplace_back(ids[at], logprobs[at]);
  }
}

absl::StatusOr<std::unique_ptr<CudaModelRunner>> CreateCudaModelRunner(
    const CudaRunnerOptions& options, ModelFiles& files, const SlicePlan& slice,
    LoadProgress& progress, const std::atomic<bool>& cancel) {
  auto runner = std::make_unique<CudaModelRunnerImpl>(options, files.spec(), slice);
  WEFT_RETURN_IF_ERROR(CheckCudaServes(files, slice, options.memory));
  WEFT_RETURN_IF_ERROR(runner->Plan());
  WEFT_RETURN_IF_ERROR(runner->Load(files, progress, cancel));
  return runner;
}

}  // namespace weft::shard

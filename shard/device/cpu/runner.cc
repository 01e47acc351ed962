#include "shard/device/cpu/runner.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"
#include "shard/device/cpu/memory_plan.h"
#include "shard/device/cpu/ops.h"
#include "shard/device/cpu/served.h"
#include "shard/device/forward.h"
#include "shard/model/warmup_batch.h"

namespace weft::shard {
namespace {

using kernels::cpu::ActivationType;
using kernels::cpu::Isa;
using kernels::cpu::Kernels;

absl::StatusOr<const Kernels*> FindKernels(const std::string& isa) {
  Isa wanted = kernels::cpu::BestIsa();
  const bool known = isa.empty() || kernels::cpu::ParseIsa(isa.c_str(), &wanted);
  if (!known || !kernels::cpu::IsSupported(wanted)) {
    return absl::InvalidArgumentError(
        absl::StrCat("instruction set '", isa, "' (--cpu-isa): this machine runs ",
                     absl::StrJoin(SupportedInstructionSets(), ", ")));
  }
  return &kernels::cpu::KernelsFor(wanted);
}

class CpuModelRunnerImpl : public CpuModelRunner {
 public:
  CpuModelRunnerImpl(const CpuRunnerOptions& options, const DecoderSpec& spec,
                     const SlicePlan& slice, const MemoryPlan& plan, const Kernels& kernels)
      : options_(options),
        spec_(spec),
        slice_(slice),
        plan_(plan),
        own_kernels_(kernels),
        kernels_(&kernels),
        weights_(spec_, slice_, options.memory.dtype),
        pool_(static_cast<int>(options.memory.threads)) {}

  absl::Status Load(ModelFiles& files, LoadProgress& progress, const std::atomic<bool>& cancel);

  absl::Status BeginEpoch(std::unique_ptr<Communicator> communicator,
                          const std::string& isa) override;
  absl::StatusOr<WarmupResult> Warmup() override;
  absl::StatusOr<StepResult> Run(const StepBatch& batch) override;
  void EndEpoch() override;
  void Abort() override;

  std::shared_ptr<ExpertLoad> expert_load() const override { return expert_counts_; }
  const MemoryPlan& memory() const override { return plan_; }
  std::string isa() const override {
    return kernels::cpu::IsaName(kernels_.load(std::memory_order_relaxed)->isa);
  }
  HelperCosts helper_costs() const override {
    return HelperCosts{pool_.waited_us(), pool_.stalls(), pool_.backoffs()};
  }

 private:
  // A step of `rows` sequences in slots 0 .. rows - 1, each with `tokens` new tokens from `start`
  // on, in blocks of their own, run twice; adds the faster time to `result`.
  absl::Status TimeShape(uint32_t rows, uint32_t tokens, uint32_t start, WarmupResult* result);

  // Logs, once an epoch.
  void WarnOfSaturation(uint64_t numbers);

  const CpuRunnerOptions options_;
  const DecoderSpec spec_;
  const SlicePlan slice_;
  MemoryPlan plan_;
  const Kernels& own_kernels_;
  std::atomic<const Kernels*> kernels_;

  CpuWeights weights_;
  ComputePool pool_;
  Workspace workspace_;
  KvCache kv_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Scorer> scorer_;
  // Null: they are not counted.
  std::shared_ptr<ExpertCounts> expert_counts_;
  std::unique_ptr<CpuOps> ops_;

  // Written by the device thread; Abort reads the pointer on any thread.
  // Not absl's: ThreadSanitizer cannot see inside a packaged library.
  std::mutex mutex_;
  std::unique_ptr<HostCommunicator> communicator_;
  // This epoch's steps end at their next operation.
  std::atomic<bool> aborted_{false};
  bool warm_ = false;
  bool saturation_told_ = false;
  WarmupResult warmup_;
};

absl::Status CpuModelRunnerImpl::Load(ModelFiles& files, LoadProgress& progress,
                                      const std::atomic<bool>& cancel) {
  const MemoryFlags& flags = options_.memory;
  WEFT_RETURN_IF_ERROR(
      files.Load(slice_, static_cast<int>(flags.threads), weights_, progress, cancel));
  WEFT_RETURN_IF_ERROR(weights_.Finish());
  plan_.weights_bytes = weights_.bytes();
  WEFT_ASSIGN_OR_RETURN(
      workspace_,
      Workspace::Create(spec_, slice_,
                        WorkspaceLimits{flags.step_tokens_max, flags.running_max, flags.threads}));
  sampler_ = std::make_unique<Sampler>(slice_, spec_.vocab, flags.running_max, pool_.threads(),
                                       workspace_.exchange_mine, workspace_.exchange_all);
  // It exchanges between the sampler's exchanges, and fewer words.
  scorer_ = std::make_unique<Scorer>(slice_, flags.running_max, pool_.threads(),
                                     workspace_.exchange_mine, workspace_.exchange_all);
  const bool wide = plan_.types.activation == NumberType::kFloat32;
  ops_ = std::make_unique<CpuOps>(
      CpuOps::Parts{spec_, slice_, weights_, workspace_, kv_, pool_, *sampler_, *scorer_,
                    wide ? ActivationType::kF32 : ActivationType::kBf16,
                    StepRowsLimits{flags.step_tokens_max, flags.running_max, spec_.vocab,
                                   spec_.context_tokens, plan_.kv_blocks, plan_.kv_groups.count()},
                    options_.rules, aborted_});
  if (flags.expert_load && spec_.experts.count > 0) {
    expert_counts_ = std::make_shared<ExpertCounts>(spec_);
  }
  return absl::OkStatus();
}

absl::Status CpuModelRunnerImpl::BeginEpoch(std::unique_ptr<Communicator> communicator,
                                            const std::string& isa) {
  if (communicator->world() != slice_.world || communicator->rank() != slice_.rank) {
    return absl::InternalError(absl::StrCat("communicator of rank ", communicator->rank(), " of ",
                                            communicator->world(), " for weights of rank ",
                                            slice_.rank, " of ", slice_.world));
  }
  const Kernels* kernels = &own_kernels_;
  if (!isa.empty()) {
    WEFT_ASSIGN_OR_RETURN(kernels, FindKernels(isa));
  }
  EndEpoch();
  kernels_.store(kernels, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = false;
  // Made by MakeHostMeeting.
  communicator_.reset(static_cast<HostCommunicator*>(communicator.release()));
  ops_->BeginEpoch(*kernels, *communicator_);
  return absl::OkStatus();
}

absl::Status CpuModelRunnerImpl::TimeShape(uint32_t rows, uint32_t tokens, uint32_t start,
                                           WarmupResult* result) {
  const StepBatch batch = MakeWarmupBatch(
      {rows, tokens, start}, {kernels::cpu::kKvBlockTokens, kv_.blocks(), plan_.kv_groups.count()});
  uint32_t fastest_us = ~0u;
  for (int i = 0; i < 2; ++i) {
    WEFT_ASSIGN_OR_RETURN(const StepResult timed, Run(batch));
    if (start == 0) WEFT_RETURN_IF_ERROR(CheckWarmupResult(timed));
    fastest_us = std::min(fastest_us, timed.device_us);
  }
  // One token per sequence is a decode row.
  const bool decode = tokens == 1;
  result->costs.push_back(WarmupResult::Cost{decode ? rows : 0, decode ? 0 : rows * tokens,
                                             uint64_t{rows} * (start + tokens), fastest_us});
  return absl::OkStatus();
}

absl::StatusOr<WarmupResult> CpuModelRunnerImpl::Warmup() {
  if (warm_) return warmup_;
  if (kv_.blocks() == 0) {
    const KvShape shape = KvShapeOf(spec_, plan_.kv_groups, slice_, plan_.types.kv);
    WEFT_ASSIGN_OR_RETURN(kv_, KvCache::Create(shape, plan_.kv_groups, plan_.kv_blocks));
  }
  // Rows of the steps below are nobody's.
  ops_->CountExperts(nullptr);
  WarmupResult result;
  result.kv_blocks = plan_.kv_blocks;
  // Every rank times the same shapes: they follow from flags that all ranks share (rank.same).
  constexpr uint32_t kPromptTokens = 32;
  constexpr uint32_t kBatchRows = 8;
  // Of one sequence that has the pool to itself.
  const uint32_t table_blocks = std::max(1u, plan_.kv_blocks / plan_.kv_groups.count());
  const uint32_t pool_tokens = static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{table_blocks} * kKvBlockTokensCpu, spec_.context_tokens));
  const uint32_t prompt = std::min({kPromptTokens, options_.memory.step_tokens_max, pool_tokens});
  const uint32_t rows = std::min(
      {kBatchRows, options_.memory.running_max, table_blocks, options_.memory.step_tokens_max});
  WEFT_RETURN_IF_ERROR(TimeShape(1, prompt, 0, &result));
  WEFT_RETURN_IF_ERROR(TimeShape(1, 1, prompt - 1, &result));
  WEFT_RETURN_IF_ERROR(TimeShape(rows, 1, 0, &result));
  sampler_->Reset();
  ops_->CountExperts(expert_counts_.get());
  warmup_ = std::move(result);
  warm_ = true;
  return warmup_;
}

absl::StatusOr<StepResult> CpuModelRunnerImpl::Run(const StepBatch& batch) {
  if (communicator_ == nullptr) return absl::FailedPreconditionError("no epoch has begun");
  if (kv_.blocks() == 0) return absl::FailedPreconditionError("Warmup has not run");
  const int64_t start_us = MonotonicClock().NowUs();
  const uint64_t waited_us = communicator_->waited_us();
  const HelperCosts before = helper_costs();
  for (const Slot slot : batch.drops) sampler_->Drop(slot);
  for (const SequenceStart& start : batch.starts) {
    WEFT_RETURN_IF_ERROR(sampler_->Begin(start));
  }
  StepResult result;
  if (!batch.sequences.empty()) {
    WEFT_RETURN_IF_ERROR(RunForward(batch, *ops_, &result));
    result.kv_saturated = ops_->kv_saturated();
    WarnOfSaturation(result.kv_saturated);
  }
  result.comm_us = static_cast<uint32_t>(communicator_->waited_us() - waited_us);
  const HelperCosts after = helper_costs();
  result.helpers = HelperCosts{after.wait_us - before.wait_us, after.stalls - before.stalls,
                               after.backoffs - before.backoffs};
  if (before.backoffs == 0 && after.backoffs > 0) {
    WEFT_LOG_WARN(
        "other processes take the cores of compute threads: they rest for a while each time they "
        "cost more than they bring (weft_shard_helper_backoffs_total)");
  }
  result.device_us = static_cast<uint32_t>(MonotonicClock().NowUs() - start_us);
  return result;
}

void CpuModelRunnerImpl::WarnOfSaturation(uint64_t numbers) {
  if (numbers == 0 || std::exchange(saturation_told_, true)) return;
  WEFT_LOG_WARN(
      "{} numbers of a step's keys and values are beyond 65504 and lie in the float16 KV cache as "
      "that: answers may differ from the model's. --kv-dtype float32 holds them, and bfloat16 with "
      "fewer digits (weft_shard_kv_saturated_total)",
      numbers);
}

void CpuModelRunnerImpl::EndEpoch() {
  sampler_->Reset();
  warm_ = false;
  saturation_told_ = false;
  std::unique_ptr<HostCommunicator> ended;
  const std::lock_guard<std::mutex> lock(mutex_);
  ended.swap(communicator_);
}

void CpuModelRunnerImpl::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) return;
  // A rank that waits for nobody is at work on the step itself.
  aborted_ = true;
  communicator_->Abort();
}

}  // namespace

std::vector<std::string> SupportedInstructionSets() {
  std::vector<std::string> names;
  for (Isa isa : {Isa::kAvx512Bf16, Isa::kAvx2, Isa::kPortable}) {
    if (kernels::cpu::IsSupported(isa)) names.push_back(kernels::cpu::IsaName(isa));
  }
  return names;
}

absl::StatusOr<std::unique_ptr<CpuModelRunner>> CreateCpuModelRunner(
    const CpuRunnerOptions& options, ModelFiles& files, const SlicePlan& slice,
    LoadProgress& progress, const std::atomic<bool>& cancel) {
  WEFT_ASSIGN_OR_RETURN(const Kernels* const kernels, FindKernels(options.isa));
  WEFT_RETURN_IF_ERROR(CheckCpuServes(files, slice.world, options.memory, options.rules));
  const auto bytes_of = [&files](const SlicePlan& part) { return files.SliceBytes(part); };
  WEFT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                        PlanCpuMemory(files.spec(), slice, files.mlp_multiple(), files.main_type(),
                                      bytes_of, options.memory));
  auto runner = std::make_unique<CpuModelRunnerImpl>(options, files.spec(), slice, plan, *kernels);
  WEFT_RETURN_IF_ERROR(runner->Load(files, progress, cancel));
  return runner;
}

}  // namespace weft::shard

#include "shard/model_loading.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/process_stat.h"
#include "common/status.h"
#include "common/tokenizer_fingerprint.h"
#include "common/version.h"
#include "shard/comm/host_meeting.h"
#include "shard/comm/mesh_meeting.h"
#include "shard/control/model_facts.h"
#include "shard/device/cpu/runner.h"

namespace weft::shard {
namespace {

// What Info calls the GPU kernels' instruction set (CMakeLists.txt).
constexpr char kCudaIsa[] = "sm_90a";

// The runner and what only its kind knows.
struct MadeRunner {
  std::unique_ptr<ModelRunner> runner;
  MemoryPlan memory;
  uint32_t block_tokens;
  std::function<std::string()> isa;
  std::unique_ptr<GroupMeeting> meeting;
};

absl::StatusOr<MadeRunner> MakeCpuRunner(const ShardFlags& flags, ModelFiles& files,
                                         const SlicePlan& slice, LoadProgress& progress,
                                         const std::atomic<bool>& cancel) {
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<CpuModelRunner> runner,
      CreateCpuModelRunner({flags.memory, flags.isa}, files, slice, progress, cancel));
  const MemoryPlan memory = runner->memory();
  const auto isa = [made = runner.get()] { return made->isa(); };
  const int64_t capacity_floats = int64_t{flags.memory.step_tokens_max} * files.spec().widest_sum();
  return MadeRunner{std::move(runner), memory, kKvBlockTokensCpu, isa,
                    flags.comm_host.empty()
                        ? MakeHostMeeting(capacity_floats)
                        : MakeMeshMeeting({capacity_floats, flags.comm_host, flags.comm_ports})};
}

absl::StatusOr<MadeRunner> MakeCudaRunner(const ShardFlags& flags, ModelFiles& files,
                                          const SlicePlan& slice, LoadProgress& progress,
                                          const std::atomic<bool>& cancel) {
  CudaRunnerOptions options;
  options.memory = flags.memory;
  options.device = *flags.gpu;
  options.step_timeout_us = absl::ToInt64Microseconds(flags.peer_timeout);
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<CudaModelRunner> runner,
                        CreateCudaModelRunner(options, files, slice, progress, cancel));
  const MemoryPlan memory = runner->memory();
  std::unique_ptr<GroupMeeting> meeting = runner->MakeMeeting();
  return MadeRunner{std::move(runner), memory, kKvBlockTokensCuda,
                    [] { return std::string(kCudaIsa); }, std::move(meeting)};
}

}  // namespace

v1::InfoResponse EarlyFacts(const ShardFlags& flags) {
  v1::InfoResponse facts;
  facts.set_protocol_version(kShardProtocolVersion);
  facts.mutable_build()->set_version(Version());
  facts.mutable_build()->set_revision(Revision());
  facts.set_rank(flags.rank);
  facts.set_world(flags.world);
  facts.set_device(flags.gpu.has_value() ? flags.gpu->name : "cpu");
  facts.set_deterministic(!flags.gpu.has_value() || flags.memory.deterministic);
  facts.set_running_max(flags.memory.running_max);
  facts.set_step_tokens_max(flags.memory.step_tokens_max);
  facts.set_pid(static_cast<uint64_t>(getpid()));
  facts.set_pid_namespace(PidNamespace());
  if (const auto self = ReadProcessStat(facts.pid()); self.has_value()) {
    facts.set_process_start_ticks(self->start_ticks);
  }
  if (flags.gpu.has_value()) {
    facts.add_isa_supported(kCudaIsa);
  } else {
    for (const std::string& isa : SupportedInstructionSets()) facts.add_isa_supported(isa);
  }
  return facts;
}

absl::StatusOr<LoadedModel> LoadModel(const ShardFlags& flags, LoadProgress& progress,
                                      const std::atomic<bool>& cancel) {
  if (flags.rank == 0 && !flags.no_gpu.ok()) {
    const std::string line = absl::StrCat("--device auto takes the CPU: ", flags.no_gpu.message());
    if (LeavesGpuUnused(flags.no_gpu)) {
      WEFT_LOG_WARN("{}", line);
    } else {
      WEFT_LOG_INFO("{}", line);
    }
  }
  if (flags.random_weights) {
    WEFT_LOG_WARN("--weights random: the weights are random numbers, and the answers nonsense");
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ModelFiles> files, flags.random_weights
                                                               ? ModelFiles::OpenShape(flags.model)
                                                               : ModelFiles::Open(flags.model));
  const DecoderSpec spec = files->spec();
  if (flags.memory.expert_load && spec.experts.count == 0) {
    WEFT_LOG_WARN("--expert-load: {} has no experts, so /metrics shows no rows of any",
                  flags.model);
  }
  absl::StatusOr<SlicePlan> slice =
      MakeSlicePlan(spec, flags.rank, flags.world, files->mlp_multiple());
  if (!slice.ok()) return Annotate(slice.status(), flags.model);
  absl::StatusOr<MadeRunner> made = flags.gpu.has_value()
                                        ? MakeCudaRunner(flags, *files, *slice, progress, cancel)
                                        : MakeCpuRunner(flags, *files, *slice, progress, cancel);
  if (!made.ok()) return Annotate(made.status(), flags.model);
  WEFT_LOG_INFO("{}", Describe(made->memory));
  if (!flags.memory.threads_reason.empty()) {
    WEFT_LOG_INFO("{} threads ({})", flags.memory.threads, flags.memory.threads_reason);
  }

  LoadedModel model;
  model.facts = EarlyFacts(flags);
  AddModelFacts(*files, made->memory, made->block_tokens, &model.facts);
  WEFT_ASSIGN_OR_RETURN(const TokenizerFingerprint tokenizer, FingerprintTokenizer(flags.model));
  model.facts.set_tokenizer_source(static_cast<v1::TokenizerSource>(tokenizer.source));
  model.facts.set_tokenizer_fingerprint(tokenizer.hash);
  model.matrices.all =
      spec.parameters() - (spec.tied_head ? 0 : uint64_t{spec.vocab} * spec.embedding_columns());
  model.matrices.of_experts = spec.expert_parameters();
  model.matrices.experts = spec.experts.count;
  model.matrices.experts_taken = spec.experts.per_token;
  model.limits.vocab_size = spec.vocab;
  model.limits.context_tokens = model.facts.context_tokens();
  model.limits.running_max = flags.memory.running_max;
  model.limits.step_tokens_max = flags.memory.step_tokens_max;
  model.limits.block_tokens = made->block_tokens;
  model.limits.kv_windows = made->memory.kv_groups.windows();
  model.meeting = std::move(made->meeting);
  model.isa = made->isa;
  model.runner = std::move(made->runner);
  return model;
}

}  // namespace weft::shard

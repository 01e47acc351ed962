#include "deploy/launcher/inspect_plans.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::launcher {
namespace {

constexpr uint32_t kWorlds[] = {1, 2, 4, 8};

// Whether GPU shards are planned: auto does where this process sees a GPU, as weft-shard.
absl::StatusOr<bool> ResolveDevice(const PlanOptions& options, shard::PlannedGpu* gpu) {
  if (options.device != "auto" && options.device != "cpu" && options.device != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: \"", options.device, "\" is not one of auto, cpu, cuda"));
  }
  if (options.device == "cpu") return false;
  if (absl::Status built = shard::CudaIsBuilt(); !built.ok()) {
    if (options.device == "cuda") return built;
    return false;
  }
  *gpu = shard::GpuToPlanFor();
  if (gpu->assumed && options.device == "auto") return false;
  if (options.device_memory_bytes > 0) {
    gpu->total_bytes = options.device_memory_bytes;
    gpu->used_bytes = std::min(gpu->used_bytes, gpu->total_bytes);
  }
  return true;
}

absl::StatusOr<shard::MemoryFlags> ResolveMemory(const PlanOptions& options, bool cuda) {
  shard::MemoryFlags flags;
  WEFT_ASSIGN_OR_RETURN(flags.dtype, shard::ParseNumberType(options.dtype));
  WEFT_ASSIGN_OR_RETURN(flags.kv_dtype, shard::ParseNumberType(options.kv_dtype));
  if (cuda || options.kv_memory_bytes > 0) flags.kv_memory_bytes = options.kv_memory_bytes;
  flags.memory_fraction = options.memory_fraction;
  flags.running_max = options.running_max;
  if (flags.running_max == 0) flags.running_max = cuda ? kRunningDefaultCuda : kRunningDefault;
  flags.step_tokens_max = options.step_tokens_max;
  if (flags.step_tokens_max == 0) {
    flags.step_tokens_max =
        std::max(cuda ? kStepTokensDefaultCuda : kStepTokensDefault, flags.running_max);
  }
  if (flags.step_tokens_max < flags.running_max) {
    return absl::InvalidArgumentError(absl::StrCat("--step-tokens-max: ", flags.step_tokens_max,
                                                   " is less than --running-max ",
                                                   flags.running_max));
  }
  return flags;
}

absl::StatusOr<shard::MemoryPlan> PlanRank(const shard::ModelFiles& files, uint32_t rank,
                                           uint32_t world, const shard::MemoryFlags& flags,
                                           const ModelPlans& plans) {
  WEFT_ASSIGN_OR_RETURN(const shard::SlicePlan slice,
                        shard::MakeSlicePlan(files.spec(), rank, world, files.mlp_multiple()));
  if (plans.cuda) return shard::PlanCudaRank(files.spec(), slice, flags, plans.gpu);
  return shard::PlanMemory(files.spec(), slice, files.mlp_multiple(), files.main_type(),
                           files.SliceBytes(slice), flags);
}

WorldPlan PlanWorld(const shard::ModelFiles& files, uint32_t world, const shard::MemoryFlags& flags,
                    const ModelPlans& plans) {
  WorldPlan out;
  out.world = world;
  out.left_bytes_min = plans.gpu.total_bytes;
  uint64_t blocks = UINT64_MAX;
  uint64_t block_tokens = 0;
  std::vector<uint64_t> block_bytes;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const auto plan = PlanRank(files, rank, world, flags, plans);
    if (!plan.ok()) {
      out.refusal = std::string(plan.status().message());
      return out;
    }
    out.weights_bytes_max = std::max(out.weights_bytes_max, plan->weights_bytes);
    out.workspace_bytes_max = std::max(out.workspace_bytes_max, plan->workspace_bytes);
    out.kv_bytes_max = std::max(out.kv_bytes_max, plan->kv_bytes);
    out.kv_bytes_all += plan->kv_bytes;
    out.kv_bytes_per_token += plan->kv_block_bytes / plan->kv_block_tokens;
    if (plans.cuda) out.left_bytes_min = std::min(out.left_bytes_min, plan->left_bytes());
    // A group has as many blocks as its smallest pool.
    blocks = std::min(blocks, uint64_t{plan->kv_blocks});
    block_tokens = plan->kv_block_tokens;
  }
  out.kv_tokens = blocks * block_tokens;
  return out;
}

}  // namespace

void DeclarePlanFlags(Flags& flags, PlanOptions* options) {
  flags.Add("device", &options->device, "auto (GPU shards where there is a GPU), cpu or cuda");
  flags
      .Add("device-memory", &options->device_memory_bytes,
           "Memory of each GPU, bytes; 0 = of the one found, else 141GiB, an H200's")
      ->transform(CLI::AsSizeValue(false));
  flags
      .Add("memory-fraction", &options->memory_fraction,
           "Share of a GPU's memory that may be in use, 0.05 .. 0.99")
      ->check(CLI::Range(0.05, 0.99));
  flags.Add("dtype", &options->dtype, "auto, float32 or bfloat16");
  flags.Add("kv-dtype", &options->kv_dtype, "auto, float32, float16 or bfloat16");
  flags
      .Add("kv-memory", &options->kv_memory_bytes,
           "KV pool of all shards of a host, bytes; 0 = 1GiB on the CPU, all that "
           "--memory-fraction leaves on CUDA")
      ->transform(CLI::AsSizeValue(false));
  flags
      .Add("running-max", &options->running_max,
           "Sequences of the running batch; 0 = 64 on the CPU, 512 on CUDA")
      ->check(CLI::Range(0u, kRunningMax));
  flags
      .Add("step-tokens-max", &options->step_tokens_max,
           "Tokens of one step; 0 = 512 on the CPU, 8192 on CUDA")
      ->check(CLI::Range(0u, kStepTokensMax));
}

absl::StatusOr<ModelPlans> PlanModel(const shard::ModelFiles& files, const PlanOptions& options) {
  ModelPlans plans;
  WEFT_ASSIGN_OR_RETURN(plans.cuda, ResolveDevice(options, &plans.gpu));
  WEFT_ASSIGN_OR_RETURN(const shard::MemoryFlags flags, ResolveMemory(options, plans.cuda));
  plans.memory_fraction = flags.memory_fraction;
  for (const uint32_t world : kWorlds) {
    plans.worlds.push_back(PlanWorld(files, world, flags, plans));
  }
  return plans;
}

std::string Assumptions(const ModelPlans& plans) {
  if (!plans.cuda) return "";
  std::string line = absl::StrCat(plans.gpu.name, ", ", plans.gpu.total_bytes >> 20, " MiB each, ",
                                  plans.gpu.used_bytes >> 20, " MiB in use before, ",
                                  plans.memory_fraction, " of it may be used");
  if (plans.gpu.assumed) {
    absl::StrAppend(&line, "; no GPU here: taken to be so, with decode attention on ",
                    shard::kAssumedMultiprocessors, " multiprocessors x ",
                    shard::kAssumedDecodeCtas);
  }
  return line;
}

}  // namespace weft::launcher

#include "deploy/launcher/inspect_plans.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/device/cpu/memory_plan.h"
#include "shard/device/cpu/planner.h"
#include "shard/device/cpu/served.h"

namespace weft::launcher {
namespace {

constexpr uint32_t kWorlds[] = {1, 2, 4, 8};
constexpr uint64_t kDeviceBytesLeast = uint64_t{1} << 30;

// GPU or CPU shards: auto plans for GPUs where this process sees one, as weft-shard.
absl::Status ResolveDevice(const PlanOptions& options, ModelPlans* plans) {
  if (options.device != "auto" && options.device != "cpu" && options.device != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: \"", options.device, "\" is not one of auto, cpu, cuda"));
  }
  absl::Status no_gpu;
  if (options.device != "cpu") {
    no_gpu = shard::CudaIsBuilt();
    if (no_gpu.ok()) plans->gpu = shard::GpuToPlanFor();
    if (no_gpu.ok() && options.device == "auto") no_gpu = plans->gpu.not_found;
    if (!no_gpu.ok() && options.device == "cuda") return Annotate(no_gpu, "--device cuda");
    plans->cuda = no_gpu.ok();
    plans->no_gpu = std::string(no_gpu.message());
  }
  if (options.device_memory == "auto") return absl::OkStatus();
  const absl::StatusOr<uint64_t> bytes = shard::ParseBytes(options.device_memory);
  if (!bytes.ok()) return Annotate(bytes.status(), "--device-memory");
  if (!plans->cuda) {
    return absl::InvalidArgumentError(absl::StrCat("--device-memory: --device ", options.device,
                                                   " plans CPU shards here; use --device cuda"));
  }
  if (*bytes < kDeviceBytesLeast) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device-memory: ", *bytes, " bytes are less than 1GiB; write 141GiB for an H200"));
  }
  plans->gpu.total_bytes = *bytes;
  plans->gpu.used_bytes = std::min(plans->gpu.used_bytes, *bytes);
  if (!plans->gpu.not_found.ok()) plans->gpu.name = "a GPU of --device-memory";
  return absl::OkStatus();
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
    out.kv_bytes_per_token +=
        plan->kv_groups.count() * plan->kv_block_bytes / plan->kv_block_tokens;
    out.kv_block_bytes += plan->kv_block_bytes;
    out.kv_block_tokens = plan->kv_block_tokens;
    if (plans.cuda) out.left_bytes_min = std::min(out.left_bytes_min, plan->left_bytes());
    out.kv_capped = out.kv_capped || plan->kv_capped;
    // A group has as many blocks as its smallest pool.
    blocks = std::min(blocks, uint64_t{plan->kv_blocks} / plan->kv_groups.count());
    block_tokens = plan->kv_block_tokens;
  }
  out.kv_tokens = blocks * block_tokens;
  return out;
}

}  // namespace

absl::StatusOr<shard::MemoryPlan> PlanRank(const shard::ModelFiles& files, uint32_t rank,
                                           uint32_t world, const shard::MemoryFlags& flags,
                                           const ModelPlans& plans) {
  WEFT_ASSIGN_OR_RETURN(const shard::SlicePlan slice,
                        shard::MakeSlicePlan(files.spec(), rank, world, files.mlp_multiple()));
  WEFT_RETURN_IF_ERROR(files.CheckCuts(slice));
  if (plans.cuda) {
    WEFT_RETURN_IF_ERROR(shard::CheckCudaServes(files, slice, flags));
    return shard::PlanCudaRank(files.spec(), slice, flags, plans.gpu);
  }
  WEFT_RETURN_IF_ERROR(shard::CheckCpuServes(files, world, flags, shard::CpuPlanRules()));
  const auto bytes_of = [&files](const shard::SlicePlan& part) { return files.SliceBytes(part); };
  return shard::PlanCpuMemory(files.spec(), slice, files.mlp_multiple(), files.main_type(),
                              bytes_of, flags);
}

void DeclarePlanFlags(Flags& flags, PlanOptions* options) {
  flags.Add("device", &options->device, "auto (GPU shards where there is a GPU), cpu or cuda");
  flags.Add("device-memory", &options->device_memory,
            "Memory of each GPU, bytes (GiB); auto = of the one found, else 141GiB, an H200's");
  DeclareMemoryFlags(flags, &options->memory);
}

absl::StatusOr<ModelPlans> PlanModel(const shard::ModelFiles& files, const PlanOptions& options) {
  ModelPlans plans;
  WEFT_RETURN_IF_ERROR(ResolveDevice(options, &plans));
  WEFT_ASSIGN_OR_RETURN(const shard::MemoryFlags flags,
                        shard::ResolveMemory(options.memory, plans.cuda));
  plans.memory_fraction = flags.memory_fraction;
  for (const uint32_t world : kWorlds) {
    plans.worlds.push_back(PlanWorld(files, world, flags, plans));
  }
  return plans;
}

absl::StatusOr<RankPlan> PlanFirstRank(const shard::ModelFiles& files, uint32_t world,
                                       const PlanOptions& options) {
  ModelPlans plans;
  WEFT_RETURN_IF_ERROR(ResolveDevice(options, &plans));
  RankPlan rank;
  rank.cuda = plans.cuda;
  WEFT_ASSIGN_OR_RETURN(rank.flags, shard::ResolveMemory(options.memory, plans.cuda));
  WEFT_ASSIGN_OR_RETURN(rank.slice,
                        shard::MakeSlicePlan(files.spec(), 0, world, files.mlp_multiple()));
  WEFT_ASSIGN_OR_RETURN(rank.memory, PlanRank(files, 0, world, rank.flags, plans));
  return rank;
}

std::string Assumptions(const ModelPlans& plans) {
  if (!plans.cuda) {
    return plans.no_gpu.empty() ? "" : absl::StrCat("the CPU's shards are planned: ", plans.no_gpu);
  }
  std::string line = absl::StrCat(plans.gpu.name, ", ", plans.gpu.total_bytes >> 20, " MiB each, ",
                                  plans.gpu.used_bytes >> 20, " MiB in use before, ",
                                  plans.memory_fraction, " of it may be used");
  if (!plans.gpu.not_found.ok()) {
    absl::StrAppend(&line, "; assumed, with an H200's ", shard::kAssumedMultiprocessors,
                    " multiprocessors: ", plans.gpu.not_found.message());
  }
  return line;
}

absl::Status SomeCountWorks(const ModelPlans& plans) {
  for (const WorldPlan& world : plans.worlds) {
    if (world.refusal.empty()) return absl::OkStatus();
  }
  return absl::FailedPreconditionError("none of these shard counts works");
}

}  // namespace weft::launcher

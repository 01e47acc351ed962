#include "deploy/launcher/doctor/memory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/cgroup.h"
#include "common/status.h"
#include "deploy/launcher/doctor/gpu.h"
#include "deploy/launcher/inspect_plans.h"
#include "shard/kv/memory_texts.h"
#include "shard/thread_share.h"

namespace weft::launcher {
namespace {

std::string Mib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

std::string KvText(const shard::MemoryPlan& plan) {
  return absl::StrCat("a KV pool of ", Mib(plan.kv_bytes), " for ", plan.kv_tokens(), " tokens");
}

absl::Status CheckGpuMemory(const ServeOptions& options, const shard::ModelFiles& files,
                            const shard::GpuSurvey& gpus, const shard::MemoryFlags& flags,
                            Report* report) {
  ModelPlans plans;
  plans.cuda = true;
  for (uint32_t rank = 0; rank < options.all_shards() && rank < gpus.gpus.size(); ++rank) {
    const shard::SurveyedGpu& gpu = gpus.gpus[rank];
    // Its memory is known; how many blocks of attention run on it at a time, on which a part of the
    // workspace depends, is taken to be as on an H200.
    plans.gpu = {gpu.name, gpu.total_bytes, gpu.used_bytes, absl::UnavailableError("not asked")};
    const absl::StatusOr<shard::MemoryPlan> plan =
        PlanRank(files, rank % options.shards, options.shards, flags, plans);
    if (!plan.ok()) return Annotate(plan.status(), absl::StrCat("GPU ", rank));
    if (rank > 0) continue;
    report->Ok("memory",
               absl::StrCat("each GPU holds ", Mib(plan->weights_bytes), " of weights and ",
                            KvText(*plan), ", ", Mib(plan->left_bytes()), " are left"));
  }
  return absl::OkStatus();
}

absl::Status CheckHostMemory(const Host& host, const ServeOptions& options,
                             const shard::ModelFiles& files, const shard::MemoryFlags& flags,
                             Report* report) {
  WEFT_ASSIGN_OR_RETURN(const shard::MemoryPlan plan,
                        PlanRank(files, 0, options.shards, flags, ModelPlans()));
  const std::string found =
      absl::StrCat(Mib(plan.host_used_bytes), " of ", Mib(plan.host.bytes), " ", plan.host.name,
                   ": ", Mib(plan.weights_bytes), " of weights and ", KvText(plan), " each shard");
  const uint64_t available = AvailableRam(host.root());
  if (available > 0 && available < plan.host_used_bytes * options.replicas) {
    report->Warn("memory", absl::StrCat(found, "; only ", Mib(available), " of RAM are free now"),
                 "end what has the rest, or use a smaller --kv-memory");
  } else if (plan.kv_bytes_unlimited > 0) {
    report->Warn("memory",
                 absl::StrCat(found, ", less than the ", Mib(plan.kv_bytes_unlimited),
                              " that there would be with more memory"),
                 "raise the limit, or say with --kv-memory that this is meant");
  } else {
    report->Ok("memory", found);
  }
  return absl::OkStatus();
}

}  // namespace

void CheckMemory(const Host& host, const ServeOptions& options, const shard::ModelFiles& files,
                 const shard::GpuSurvey& gpus, Report* report) {
  const bool cuda = TakesGpus(options, gpus);
  absl::StatusOr<shard::MemoryFlags> flags = shard::ResolveMemory(options.shard.memory, cuda);
  absl::Status status = flags.status();
  if (status.ok()) {
    flags->deterministic = options.shard.deterministic;
    flags->host = shard::ShareMemory(HostMemoryLimit(host.root()), options.replicas);
    shard::ShareCores(options.shard.threads, options.all_shards(), host.Cores(),
                      ReadCgroupLimits(host.root()), &*flags);
    status = cuda ? CheckGpuMemory(options, files, gpus, *flags, report)
                  : CheckHostMemory(host, options, files, *flags, report);
  }
  if (!status.ok()) report->Fail("memory", status);
}

}  // namespace weft::launcher

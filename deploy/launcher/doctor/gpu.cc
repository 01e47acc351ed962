#include "deploy/launcher/doctor/gpu.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/launcher/shard_count.h"
#include "shard/device/cuda/runner.h"

namespace weft::launcher {
namespace {

// Of NCCL, for each pair of ranks that do not reach each other's memory; containers have 64 MiB in
// all unless they are given more.
constexpr uint64_t kDevShmBytesPerRank = uint64_t{128} << 20;

std::string Mib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

void ShowGpus(uint32_t shards, const shard::GpuSurvey& gpus, Report* report) {
  for (uint32_t index = 0; index < shards && index < gpus.gpus.size(); ++index) {
    const shard::SurveyedGpu& gpu = gpus.gpus[index];
    report->Ok(absl::StrCat("GPU ", index), absl::StrCat(gpu.name, ", ", Mib(gpu.total_bytes), ", ",
                                                         Mib(gpu.used_bytes), " in use"));
  }
  report->Ok("driver", absl::StrCat("CUDA ", gpus.driver_cuda, ", this build is made with ",
                                    gpus.build_cuda));
  report->Ok("libraries", absl::StrJoin(gpus.libraries, ", "));
}

void CheckReach(uint32_t shards, const shard::GpuSurvey& gpus, Report* report) {
  // CheckGpuDevices has said that some are missing.
  if (gpus.gpus.size() < shards) return;
  for (uint32_t index = 0; index < shards; ++index) {
    for (const uint32_t other : gpus.gpus[index].out_of_reach) {
      if (other >= shards) continue;
      return report->Warn("GPUs among each other",
                          absl::StrCat("GPU ", index, " does not reach the memory of GPU ", other,
                                       ", so every sum of the ranks goes through NCCL"),
                          "use GPUs that are joined by NVLink: nvidia-smi topo -m");
    }
  }
  report->Ok("GPUs among each other", absl::StrCat("all ", shards, " reach each other's memory"));
}

void CheckDevShm(const Host& host, uint32_t shards, Report* report) {
  const absl::optional<uint64_t> bytes = host.DevShmBytes();
  const uint64_t wanted = shards * kDevShmBytesPerRank;
  const std::string way_out = absl::StrCat(
      "give it ", Mib(wanted),
      ": --shm-size of a container, an emptyDir with medium Memory at /dev/shm in Kubernetes");
  if (!bytes.has_value()) {
    report->Fail("/dev/shm", "is not there, and NCCL needs it", way_out);
  } else if (*bytes < wanted) {
    report->Warn("/dev/shm",
                 absl::StrCat(Mib(*bytes), " are free, and NCCL may fail with less than ",
                              Mib(wanted), " for ", shards, " ranks"),
                 way_out);
  } else {
    report->Ok("/dev/shm", absl::StrCat(Mib(*bytes), " are free"));
  }
}

}  // namespace

bool TakesGpus(const ServeOptions& options, const shard::GpuSurvey& gpus) {
  if (options.shard.device == "cuda") return true;
  return options.shard.device == "auto" && !gpus.gpus.empty() && gpus.gpus[0].serves.ok();
}

void CheckGpuDevices(const ServeOptions& options, const shard::GpuSurvey& gpus, Report* report) {
  const std::string& device = options.shard.device;
  if (device == "cpu") return report->Ok("device", "the CPU, as --device says");
  const auto find = [&gpus](uint32_t index) -> absl::Status {
    if (!gpus.any.ok()) return gpus.any;
    if (index < gpus.gpus.size()) return gpus.gpus[index].serves;
    return absl::NotFoundError(absl::StrCat("this process sees no GPU ", index));
  };
  const absl::Status first = find(0);
  if (device == "auto" && !first.ok()) {
    const std::string found = absl::StrCat("the CPU computes: ", first.message());
    // As a shard that takes the CPU: a GPU that nobody uses is worth a warning.
    if (shard::LeavesGpuUnused(first)) {
      return report->Warn("device", found, "--device cpu says that this is meant");
    }
    return report->Ok("device", found);
  }
  if (absl::Status status = CheckGpus(device, options.shards, find, options.replicas);
      !status.ok()) {
    return report->Fail("device", status);
  }
  ShowGpus(options.all_shards(), gpus, report);
}

void CheckExchange(const Host& host, const ServeOptions& options, const shard::GpuSurvey& gpus,
                   Report* report) {
  if (options.shards == 1) return;
  if (TakesGpus(options, gpus)) {
    CheckReach(options.shards, gpus, report);
    return CheckDevShm(host, options.all_shards(), report);
  }
  if (absl::Status status = host.Meet(); !status.ok()) {
    return report->Fail("shared memory of shards", std::string(status.message()),
                        "all shards run as one user in one container, whose /proc shows each "
                        "other's processes: no hidepid=, no security module that forbids it");
  }
  report->Ok("shared memory of shards", "processes reach each other's through /proc/<pid>/fd");
}

}  // namespace weft::launcher

// A build without CUDA.

#include "shard/device/cuda/runner.h"

#include <unistd.h>

namespace weft::shard {
namespace {

absl::Status NotBuilt() {
  return absl::UnimplementedError(
      "this build has no CUDA backend: build with CUDA 13 (deploy/setup.sh --cuda)");
}

}  // namespace

absl::StatusOr<CudaDevice> FindCudaDevice(uint32_t) { return NotBuilt(); }

bool LeavesGpuUnused(const absl::Status&) {
  return access("/proc/driver/nvidia/version", F_OK) == 0;
}

void PrepareCudaEnvironment() {}

absl::StatusOr<std::unique_ptr<CudaModelRunner>> CreateCudaModelRunner(const CudaRunnerOptions&,
                                                                       ModelFiles&,
                                                                       const SlicePlan&,
                                                                       LoadProgress&,
                                                                       const std::atomic<bool>&) {
  return NotBuilt();
}

}  // namespace weft::shard

// A build without CUDA.

#include "shard/cuda_model_runner.h"

namespace weft::shard {
namespace {

absl::Status NotBuilt() {
  return absl::UnimplementedError(
      "--device: this build has no CUDA backend; use --device cpu, or build with CUDA 13 "
      "(deploy/setup.sh --cuda)");
}

}  // namespace

absl::StatusOr<CudaDevice> FindCudaDevice(uint32_t) { return NotBuilt(); }

void PrepareCudaEnvironment() {}

absl::StatusOr<std::unique_ptr<CudaModelRunner>> CreateCudaModelRunner(const CudaRunnerOptions&,
                                                                       ModelFiles&,
                                                                       const SlicePlan&,
                                                                       LoadProgress&,
                                                                       const std::atomic<bool>&) {
  return NotBuilt();
}

}  // namespace weft::shard

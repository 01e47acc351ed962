// A build without CUDA.

#include "shard/device/cuda/planning.h"

namespace weft::shard {

absl::Status CudaIsBuilt() {
  return absl::UnimplementedError(
      "this build has no CUDA backend: use --device cpu, or build with CUDA 13 "
      "(deploy/setup.sh --cuda)");
}

PlannedGpu GpuToPlanFor() { return {}; }

absl::StatusOr<MemoryPlan> PlanCudaRank(const DecoderSpec&, const SlicePlan&, const MemoryFlags&,
                                        const PlannedGpu&) {
  return CudaIsBuilt();
}

}  // namespace weft::shard

// A build without CUDA.

#include "shard/cuda_planning.h"

namespace weft::shard {

absl::Status CudaIsBuilt() {
  return absl::UnimplementedError(
      "--device cuda: this build has no CUDA; use --device cpu, or build with CUDA 13 "
      "(deploy/setup.sh --cuda)");
}

PlannedGpu GpuToPlanFor() { return {}; }

absl::StatusOr<MemoryPlan> PlanCudaRank(const DecoderSpec&, const SlicePlan&, const MemoryFlags&,
                                        const PlannedGpu&) {
  return CudaIsBuilt();
}

}  // namespace weft::shard

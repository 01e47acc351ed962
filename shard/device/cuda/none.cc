// All of shard/device/cuda in a build without CUDA: every function refuses, in one sentence.

#include <unistd.h>

#include "shard/device/cuda/planning.h"
#include "shard/device/cuda/runner.h"
#include "shard/device/cuda/survey.h"
#include "shard/device/cuda/tuning.h"

namespace weft::shard {

absl::Status CudaIsBuilt() {
  return absl::UnimplementedError(
      "this build has no CUDA backend: use --device cpu, or build with CUDA 13 "
      "(deploy/setup.sh --cuda)");
}

// -- planning.h

PlannedGpu GpuToPlanFor() { return {}; }

absl::Status CheckCudaServes(const ModelFiles&, const SlicePlan&, const MemoryFlags&) {
  return CudaIsBuilt();
}

absl::StatusOr<MemoryPlan> PlanCudaRank(const DecoderSpec&, const SlicePlan&, const MemoryFlags&,
                                        const PlannedGpu&) {
  return CudaIsBuilt();
}

absl::StatusOr<LayerPlan> PlanCudaStep(const DecoderSpec&, const SlicePlan&, const MemoryFlags&,
                                       uint32_t, uint32_t) {
  return CudaIsBuilt();
}

// -- runner.h

absl::StatusOr<CudaDevice> FindCudaDevice(const GpuChoice&) { return CudaIsBuilt(); }

bool LeavesGpuUnused(const absl::Status&) {
  return access("/proc/driver/nvidia/version", F_OK) == 0;
}

void PrepareCudaEnvironment() {}

absl::StatusOr<std::unique_ptr<CudaModelRunner>> CreateCudaModelRunner(const CudaRunnerOptions&,
                                                                       ModelFiles&,
                                                                       const SlicePlan&,
                                                                       LoadProgress&,
                                                                       const std::atomic<bool>&) {
  return CudaIsBuilt();
}

// -- survey.h

GpuSurvey SurveyGpus() {
  GpuSurvey survey;
  survey.any = CudaIsBuilt();
  return survey;
}

// -- tuning.h

absl::Status TuneCudaProducts(const ModelFiles&, const CudaTuneOptions&, absl::string_view,
                              absl::FunctionRef<void(const CudaTuneLine&)>,
                              absl::FunctionRef<absl::Status(const std::string&)>) {
  return CudaIsBuilt();
}

}  // namespace weft::shard

#include "shard/device/cuda/planning.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "common/status.h"
#include "kernels/cuda/attention/decode_attention.h"
#include "shard/device/cuda/memory_plan.h"
#include "shard/device/cuda/planner.h"
#include "shard/device/cuda/runner.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

// Of an H200: what is in use of it once a process has a context on it, rounded up.
constexpr uint64_t kAssumedTotalBytes = uint64_t{141} << 30;
constexpr uint64_t kAssumedUsedBytes = uint64_t{1} << 30;

PlannedGpu AssumedGpu(absl::Status reason) {
  return {"one H200", kAssumedTotalBytes, kAssumedUsedBytes, std::move(reason)};
}

absl::StatusOr<uint32_t> DecodeGridOf(const CudaShape& shape, uint32_t group_max,
                                      const PlannedGpu& gpu) {
  if (shape.latent) return 0;
  if (!gpu.not_found.ok()) return kAssumedMultiprocessors * kAssumedDecodeCtas;
  uint32_t grid = 0;
  WEFT_RETURN_IF_ERROR(CudaStatus(kernels::cuda::DecodeGrid(shape.head_stride, group_max, &grid),
                                  "occupancy of decode attention"));
  return grid;
}

}  // namespace

absl::Status CudaIsBuilt() { return absl::OkStatus(); }

PlannedGpu GpuToPlanFor() {
  const absl::StatusOr<CudaDevice> found = FindCudaDevice({0, 0});
  if (!found.ok()) return AssumedGpu(found.status());
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  absl::Status status = CudaStatus(cudaSetDevice(found->index), "setting the GPU");
  if (status.ok()) status = CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "its memory");
  if (!status.ok()) return AssumedGpu(std::move(status));
  return {found->name, total_bytes, total_bytes - free_bytes, absl::OkStatus()};
}

absl::StatusOr<LayerPlan> PlanCudaStep(const DecoderSpec& spec, const SlicePlan& slice,
                                       const MemoryFlags& flags, uint32_t rows, uint32_t sampled) {
  WEFT_ASSIGN_OR_RETURN(const CudaShape shape, PlanCudaShape(spec, slice, flags));
  CudaPlanFacts facts = FactsOf(spec, shape, slice, flags.deterministic);
  facts.peers = slice.world > 1 && facts.bfloat16;
  CudaPlans plans = MakeCudaPlans(spec, facts);
  return LayerPlan{std::move(plans[static_cast<size_t>(RowClassOf(rows))].body),
                   std::move(plans[static_cast<size_t>(RowClassOf(sampled))].tail)};
}

absl::StatusOr<MemoryPlan> PlanCudaRank(const DecoderSpec& spec, const SlicePlan& slice,
                                        const MemoryFlags& flags, const PlannedGpu& gpu) {
  WEFT_ASSIGN_OR_RETURN(const CudaShape shape, PlanCudaShape(spec, slice, flags));
  WEFT_ASSIGN_OR_RETURN(const uint32_t decode_grid,
                        DecodeGridOf(shape, LargestHeadGroup(shape, slice), gpu));
  return PlanCudaMemory(spec, shape, PlanCudaLimits(spec, shape, slice, flags, decode_grid), flags,
                        {gpu.total_bytes, gpu.used_bytes});
}

}  // namespace weft::shard

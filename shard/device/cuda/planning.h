// What a GPU shard would hold in memory, for shard counts that are not running: the plan behind
// `weft inspect --device cuda`. Asks a GPU that is there what it has and what decode attention may
// use of it; without one takes what an H200 has. Any thread; takes no device memory. This header
// knows nothing of CUDA: a build without it has the same functions, which refuse.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/kv/memory_plan.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/layer_plan.h"
#include "shard/weights/loader.h"
#include "shard/weights/slice_plan.h"

namespace weft::shard {

// A GPU to plan for.
struct PlannedGpu {
  // As "NVIDIA H200".
  std::string name;
  uint64_t total_bytes = 0;
  // By CUDA itself and by others.
  uint64_t used_bytes = 0;
  // Why none was found, and everything here is taken to be so; OK when one was.
  absl::Status not_found;
};

// OK, or UNIMPLEMENTED in a build without CUDA, saying what would work.
absl::Status CudaIsBuilt();

// The first GPU of this process; an H200 when there is none that the kernels run on. REQUIRES:
// CudaIsBuilt.
PlannedGpu GpuToPlanFor();

// What decode attention is taken to use of an assumed GPU: multiprocessors, and CTAs on each.
inline constexpr uint32_t kAssumedMultiprocessors = 132;
inline constexpr uint32_t kAssumedDecodeCtas = 2;

// INVALID_ARGUMENT for the first operation of the model's plans, or pair of types, that no kernel
// serves: names operation, layer, types and the way out (shard/device/served_ops.h).
absl::Status CheckCudaServes(const ModelFiles& files, const SlicePlan& slice,
                             const MemoryFlags& flags);

// Plans rank `slice.rank` on `gpu`. RESOURCE_EXHAUSTED, saying what is needed and what would fit;
// INVALID_ARGUMENT for a model or types that the kernels do not serve.
absl::StatusOr<MemoryPlan> PlanCudaRank(const DecoderSpec& spec, const SlicePlan& slice,
                                        const MemoryFlags& flags, const PlannedGpu& gpu);

// What that rank runs in a step of `rows` rows of which `sampled` sample, sums over ranks through
// peers' memory. Errors as above.
absl::StatusOr<LayerPlan> PlanCudaStep(const DecoderSpec& spec, const SlicePlan& slice,
                                       const MemoryFlags& flags, uint32_t rows, uint32_t sampled);

}  // namespace weft::shard

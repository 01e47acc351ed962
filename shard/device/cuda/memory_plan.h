// What a CUDA shard will hold on its device, computed from shapes and flags alone (invariant
// mem.plan): weights, workspace of the largest step, graphs; the rest of the share that it may use
// is KV blocks. Pure; used by the model runner before it takes anything and by `weft inspect`.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "shard/device/cuda/workspace.h"
#include "shard/kv/memory_plan.h"

namespace weft::shard {

// Of a device, as cudaMemGetInfo says once the process uses it.
struct DeviceMemory {
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;
};

// bfloat16 unless something else is asked for; the KV cache likewise in the type of activations.
// Whether there are kernels for them says served.h.
NumberTypes ResolveCudaTypes(NumberType dtype, NumberType kv_dtype);

// The slice's widths in the type that `flags` ask for.
absl::StatusOr<CudaShape> PlanCudaShape(const DecoderSpec& spec, const SlicePlan& slice,
                                        const MemoryFlags& flags);

// Query heads of the largest group of one KV head.
uint32_t LargestHeadGroup(const CudaShape& shape, const SlicePlan& slice);

// `decode_grid` of kernels/cuda/attention/decode_attention.h, which only the device knows; latent
// attention has none.
CudaLimits PlanCudaLimits(const DecoderSpec& spec, const CudaShape& shape, const SlicePlan& slice,
                          const MemoryFlags& flags, uint32_t decode_grid);

// What NCCL takes of a rank's memory when the ranks first meet, generously; 0 for one alone.
uint64_t NcclBytes(uint32_t world);

// `memory_fraction` of the device's memory may be used, by this process and others together;
// `flags.kv_memory_bytes` > 0 bounds the pool of all ranks instead. RESOURCE_EXHAUSTED, saying what
// is needed and what would fit, when not even one sequence of a block fits.
absl::StatusOr<MemoryPlan> PlanCudaMemory(const DecoderSpec& spec, const CudaShape& shape,
                                          const CudaLimits& limits, const MemoryFlags& flags,
                                          const DeviceMemory& device);

}  // namespace weft::shard

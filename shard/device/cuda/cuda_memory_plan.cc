#include "shard/device/cuda/cuda_memory_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/device/cuda/cuda_kv_cache.h"
#include "shard/device/cuda/cuda_weights.h"
#include "shard/device/cuda/peer_sum.h"

namespace weft::shard {
namespace {

// Executable graphs: about 4 KiB a kernel on the device, measured; a layer has at most a dozen. As
// many graphs as there are buckets, twice over for sampler features.
constexpr uint64_t kGraphKernelBytes = 4096;
constexpr uint64_t kGraphKernelsOfLayer = 12;
constexpr uint64_t kGraphs = 140;
// cuBLASLt and the CUDA runtime load their kernels when they are first used.
constexpr uint64_t kLibraryBytes = uint64_t{256} << 20;

std::string Mib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

}  // namespace

absl::StatusOr<NumberTypes> ResolveCudaTypes(NumberType dtype, NumberType kv_dtype) {
  NumberTypes types{dtype, kv_dtype};
  if (dtype == NumberType::kAuto) types.activation = NumberType::kBfloat16;
  if (types.activation == NumberType::kFloat16) {
    return absl::InvalidArgumentError(
        "--dtype float16: CUDA shards compute in bfloat16 or float32; float16 files are served "
        "with --dtype auto");
  }
  if (kv_dtype == NumberType::kAuto) types.kv = types.activation;
  if (types.kv != types.activation) {
    return absl::InvalidArgumentError(absl::StrCat("--kv-dtype ", NumberTypeName(kv_dtype),
                                                   ": on CUDA the KV cache has the type of "
                                                   "activations, ",
                                                   NumberTypeName(types.activation)));
  }
  return types;
}

absl::StatusOr<MemoryPlan> PlanCudaMemory(const DecoderSpec& spec, const CudaShape& shape,
                                          const CudaLimits& limits, const MemoryFlags& flags,
                                          const DeviceMemory& device) {
  MemoryPlan plan;
  WEFT_ASSIGN_OR_RETURN(plan.types, ResolveCudaTypes(flags.dtype, flags.kv_dtype));
  plan.weights_bytes = CudaWeights::Bytes(spec, shape);
  plan.workspace_bytes = CudaWorkspace::Bytes(shape, limits) + kLibraryBytes +
                         (limits.world > 1 ? PeerSum::Bytes(shape.hidden) : 0) +
                         kGraphs * shape.layers * kGraphKernelsOfLayer * kGraphKernelBytes;
  plan.kv_block_bytes = CudaKvCache::BlockBytes(shape);
  const auto usable =
      static_cast<uint64_t>(static_cast<double>(device.total_bytes) * flags.memory_fraction);
  const uint64_t fixed = device.used_bytes + plan.weights_bytes + plan.workspace_bytes;
  const uint64_t needed = fixed + plan.kv_block_bytes;
  if (needed > usable) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "--memory-fraction ", flags.memory_fraction, " of ", Mib(device.total_bytes),
        " device memory is ", Mib(usable), "; this shard needs ", Mib(needed), ": in use already ",
        Mib(device.used_bytes), ", weights ", Mib(plan.weights_bytes), ", workspace ",
        Mib(plan.workspace_bytes), ", one KV block ", Mib(plan.kv_block_bytes),
        ". Use more shards, a smaller --step-tokens-max or --running-max, or free the device"));
  }
  uint64_t blocks = (usable - fixed) / plan.kv_block_bytes;
  if (flags.kv_memory_bytes > 0) {
    blocks = std::min(blocks, flags.kv_memory_bytes / limits.world / plan.kv_block_bytes);
    if (blocks == 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("--kv-memory ", flags.kv_memory_bytes, " bytes hold no KV block; one takes ",
                       plan.kv_block_bytes * limits.world, " bytes on all shards together"));
    }
  }
  // More than every sequence at full length would never be used.
  plan.kv_blocks = static_cast<uint32_t>(std::min(blocks, limits.block_ids_max()));
  plan.kv_bytes = uint64_t{plan.kv_blocks} * plan.kv_block_bytes;
  return plan;
}

}  // namespace weft::shard

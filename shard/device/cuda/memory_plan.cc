#include "shard/device/cuda/memory_plan.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/device/cuda/graph_cache.h"
#include "shard/device/cuda/kv_cache.h"
#include "shard/device/cuda/peer_sum.h"
#include "shard/device/cuda/weights.h"

namespace weft::shard {
namespace {

// Executable graphs: about 4 KiB a kernel on the device, measured; a layer has at most a dozen, one
// of latent attention, or with norms behind its sums, as many again.
constexpr uint64_t kGraphKernelBytes = 4096;
constexpr uint64_t kGraphKernelsOfLayer = 12;

uint64_t GraphsLayerBytes(const DecoderSpec& spec, const CudaLimits& limits) {
  const bool more = spec.latent.rank > 0 || spec.residual_norms;
  const uint64_t kernels =
      (more ? 2 * kGraphKernelsOfLayer : kGraphKernelsOfLayer) + (limits.expert_load ? 1 : 0);
  return GraphCache::kGraphsMax * kernels * kGraphKernelBytes;
}
// cuBLASLt and the CUDA runtime load their kernels when they are first used.
constexpr uint64_t kLibraryBytes = uint64_t{256} << 20;
// NCCL's state and kernels.
constexpr uint64_t kNcclBytes = uint64_t{256} << 20;
// For each peer the buffers of 32 channels: 4 MiB (NCCL_BUFFSIZE) and those of the short protocols
// on top, in both directions.
constexpr uint64_t kNcclPeerBytes = uint64_t{320} << 20;
// A rank has as many peers as its rings and trees give it neighbours.
constexpr uint64_t kNcclPeersMax = 4;

// --memory-fraction is at most this.
constexpr uint64_t kPercentMax = 99;

std::string Mib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

std::string WhatWouldFit(uint64_t needed, const DeviceMemory& device) {
  const std::string smaller =
      "more shards or a smaller --step-tokens-max or --running-max need less";
  // In whole percent, rounded up twice: the product with the fraction is rounded down.
  const uint64_t percent = needed * 100 / std::max<uint64_t>(device.total_bytes, 1) + 1;
  if (percent <= kPercentMax) {
    return absl::StrFormat("It fits with --memory-fraction %.2f; %s", percent * 0.01, smaller);
  }
  return absl::StrCat("No --memory-fraction lets it fit; ", smaller,
                      device.used_bytes > 0 ? ", and so does a device that nobody else uses" : "");
}

}  // namespace

NumberTypes ResolveCudaTypes(NumberType dtype, NumberType kv_dtype) {
  NumberTypes types{dtype, kv_dtype};
  if (dtype == NumberType::kAuto) types.activation = NumberType::kBfloat16;
  if (kv_dtype == NumberType::kAuto) types.kv = types.activation;
  return types;
}

absl::StatusOr<CudaShape> PlanCudaShape(const DecoderSpec& spec, const SlicePlan& slice,
                                        const MemoryFlags& flags) {
  const NumberTypes types = ResolveCudaTypes(flags.dtype, flags.kv_dtype);
  const bool wide = types.activation == NumberType::kFloat32;
  return MakeCudaShape(spec, slice,
                       wide ? kernels::cuda::DType::kFloat32 : kernels::cuda::DType::kBfloat16);
}

uint32_t LargestHeadGroup(const CudaShape& shape, const SlicePlan& slice) {
  uint32_t largest = 0;
  std::vector<uint32_t> heads(shape.kv_heads, 0);
  for (const uint32_t kv_head : slice.kv_head_of) largest = std::max(largest, ++heads[kv_head]);
  return largest;
}

CudaLimits PlanCudaLimits(const DecoderSpec& spec, const CudaShape& shape, const SlicePlan& slice,
                          const MemoryFlags& flags, uint32_t decode_grid) {
  CudaLimits limits;
  // Decode rows are padded to a graph's.
  limits.running_max = flags.running_max <= GraphCache::kRowsMax
                           ? GraphCache::Bucket(flags.running_max)
                           : flags.running_max;
  limits.step_tokens_max = std::max(flags.step_tokens_max, limits.running_max);
  limits.context_tokens = std::min(spec.context_tokens, kContextTokensMax);
  limits.world = slice.world;
  limits.deterministic = flags.deterministic;
  limits.vocab = spec.vocab;
  limits.decode_grid = decode_grid;
  limits.group_max = LargestHeadGroup(shape, slice);
  for (uint32_t kind = 0; kind < spec.attention_kinds.size(); ++kind) {
    const bool shared = spec.RopeKind(kind) != kind;
    limits.rotary_pairs.push_back(shared ? 0 : spec.attention_kinds[kind].rope.dims / 2);
  }
  const KvGroups groups = MakeKvGroups(spec);
  limits.kv_groups = groups.count();
  limits.sinks = spec.attention_sinks;
  limits.expert_load = flags.expert_load && spec.experts.count > 0;
  limits.kv_id_stride = CudaKvCache::IdStride(shape, groups);
  return limits;
}

uint64_t NcclBytes(uint32_t world) {
  if (world == 1) return 0;
  return kNcclBytes + std::min<uint64_t>(world - 1, kNcclPeersMax) * kNcclPeerBytes;
}

absl::StatusOr<MemoryPlan> PlanCudaMemory(const DecoderSpec& spec, const CudaShape& shape,
                                          const CudaLimits& limits, const MemoryFlags& flags,
                                          const DeviceMemory& device) {
  MemoryPlan plan;
  plan.types = ResolveCudaTypes(flags.dtype, flags.kv_dtype);
  plan.weights_bytes = CudaWeights::Bytes(spec, shape);
  plan.workspace_bytes = CudaWorkspace::Bytes(shape, limits) + kLibraryBytes +
                         (limits.world > 1 ? PeerSum::Bytes(shape.hidden) : 0) +
                         NcclBytes(limits.world) + shape.layers * GraphsLayerBytes(spec, limits);
  plan.kv_groups = MakeKvGroups(spec);
  plan.kv_block_bytes = CudaKvCache::BlockBytes(shape, plan.kv_groups);
  plan.kv_block_tokens = kKvBlockTokensCuda;
  plan.device_bytes = device.total_bytes;
  plan.device_used_bytes = device.used_bytes;
  const auto usable =
      static_cast<uint64_t>(static_cast<double>(device.total_bytes) * flags.memory_fraction);
  const uint64_t fixed = device.used_bytes + plan.weights_bytes + plan.workspace_bytes;
  // A block for every group.
  const uint64_t least = plan.kv_groups.count() * plan.kv_block_bytes;
  const uint64_t needed = fixed + least;
  if (needed > usable) {
    return absl::ResourceExhaustedError(
        absl::StrCat("--memory-fraction ", flags.memory_fraction, " of ", Mib(device.total_bytes),
                     " device memory is ", Mib(usable), "; this shard needs ", Mib(needed),
                     ": in use already ", Mib(device.used_bytes), ", weights ",
                     Mib(plan.weights_bytes), ", workspace ", Mib(plan.workspace_bytes),
                     ", one KV block ", Mib(least), ". ", WhatWouldFit(needed, device)));
  }
  uint64_t blocks = (usable - fixed) / plan.kv_block_bytes;
  if (flags.kv_memory_bytes > 0) {
    blocks = std::min(blocks, flags.kv_memory_bytes / limits.world / plan.kv_block_bytes);
    if (blocks < plan.kv_groups.count()) {
      return absl::ResourceExhaustedError(NoKvBlock(flags.kv_memory_bytes, plan.kv_groups.count(),
                                                    plan.kv_block_tokens,
                                                    plan.kv_block_bytes * limits.world));
    }
  }
  // More than every sequence at full length would never be used.
  plan.kv_capped = blocks > limits.block_ids_max();
  plan.kv_blocks = static_cast<uint32_t>(std::min(blocks, limits.block_ids_max()));
  plan.kv_bytes = uint64_t{plan.kv_blocks} * plan.kv_block_bytes;
  return plan;
}

}  // namespace weft::shard

#include "shard/device/cpu/memory_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "shard/device/cpu/workspace.h"

namespace weft::shard {
namespace {

// Of a process, besides what is planned: code, stacks, heap, pages of files under way.
constexpr uint64_t kProcessBytes = uint64_t{64} << 20;
// Of each process that has CUDA's libraries in it, also where it computes on the CPU: the loader
// writes addresses into that much of their pages.
#ifdef WEFT_WITH_CUDA_LIBRARIES
constexpr uint64_t kLibraryBytes = uint64_t{100} << 20;
#else
constexpr uint64_t kLibraryBytes = 0;
#endif

std::string Mib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

// Packing keeps every bit; only an explicit bfloat16 halves float32 files.
uint64_t WeightsBytes(uint64_t file_bytes, TensorType main_type, const MemoryFlags& flags) {
  const bool halved = flags.dtype == NumberType::kBfloat16 && main_type == TensorType::kF32;
  return halved ? file_bytes / 2 : file_bytes;
}

uint64_t WorkspaceBytes(const DecoderSpec& spec, const SlicePlan& slice, const MemoryFlags& flags) {
  return Workspace::Bytes(spec, slice,
                          WorkspaceLimits{flags.step_tokens_max, flags.running_max, flags.threads});
}

// Of all ranks together.
struct GroupBytes {
  uint64_t weights = 0;
  uint64_t workspace = 0;
  uint64_t block = 0;
};

// Holds the shards of one host against its memory.
absl::Status FitIntoHost(const MemoryFlags& flags, uint32_t world, const GroupBytes& group,
                         MemoryPlan* plan) {
  if (flags.host.bytes == 0) return absl::OkStatus();
  const uint64_t processes = HostProcessBytes(world);
  const uint64_t fixed = group.weights + group.workspace + processes;
  const uint64_t fitting = flags.host.bytes > fixed ? (flags.host.bytes - fixed) / group.block : 0;
  if (fitting < plan->kv_blocks) {
    const bool enough = fitting >= plan->kv_groups.count();
    if (!enough || flags.kv_memory_asked) {
      const std::string way_out =
          enough ? absl::StrCat("It fits with --kv-memory ",
                                // In whole MiB, rounded down, where that is a block or more.
                                fitting * group.block >= (1 << 20)
                                    ? absl::StrCat(fitting * group.block >> 20, "MiB")
                                    : absl::StrCat(fitting * group.block))
                 : "No --kv-memory lets it fit: raise the limit, lower --step-tokens-max or "
                   "--running-max, or serve a smaller model";
      return absl::ResourceExhaustedError(absl::StrCat(
          "the ", world == 1 ? "shard" : absl::StrCat(world, " shards of this host"),
          " would take ", Mib(fixed + plan->kv_blocks * group.block), " of ", Mib(flags.host.bytes),
          " ", flags.host.name, ": weights ", Mib(group.weights), ", workspace ",
          Mib(group.workspace), ", KV pool ", Mib(plan->kv_blocks * group.block), ", processes ",
          Mib(processes), ". ", way_out));
    }
    plan->kv_bytes_unlimited = plan->kv_blocks * plan->kv_block_bytes;
    plan->kv_capped = false;
    plan->kv_blocks = static_cast<uint32_t>(fitting);
  }
  plan->host = flags.host;
  plan->host_used_bytes = fixed + plan->kv_blocks * group.block;
  return absl::OkStatus();
}

}  // namespace

uint64_t HostProcessBytes(uint32_t world) {
  // The shards and the router; and the shards and the launcher.
  return (world + 1) * kProcessBytes + (world + 1) * kLibraryBytes;
}

kernels::cpu::KvType KernelKvType(NumberType type) {
  WEFT_CHECK(type != NumberType::kAuto);
  if (type == NumberType::kFloat32) return kernels::cpu::KvType::kF32;
  return type == NumberType::kFloat16 ? kernels::cpu::KvType::kF16 : kernels::cpu::KvType::kBf16;
}

KvShape KvShapeOf(const DecoderSpec& spec, const KvGroups& groups, const SlicePlan& slice,
                  NumberType type) {
  return {KernelKvType(type), groups.block_layers, slice.kv_heads.size(), spec.head_dim,
          spec.latent.rank == 0};
}

NumberTypes ResolveCpuTypes(NumberType dtype, NumberType kv_dtype, TensorType main_type) {
  NumberTypes types{dtype, kv_dtype};
  if (dtype == NumberType::kAuto) {
    const bool wide = main_type == TensorType::kF32 || main_type == TensorType::kF16;
    types.activation = wide ? NumberType::kFloat32 : NumberType::kBfloat16;
  }
  if (kv_dtype == NumberType::kAuto) {
    const bool wide = types.activation == NumberType::kFloat32;
    types.kv = wide ? NumberType::kFloat32 : NumberType::kFloat16;
  }
  return types;
}

TensorType CpuMatrixType(TensorType type, NumberType dtype) {
  const bool wide = type == TensorType::kF32 || type == TensorType::kF16;
  return dtype == NumberType::kBfloat16 && wide ? TensorType::kBf16 : type;
}

absl::StatusOr<MemoryPlan> PlanCpuMemory(const DecoderSpec& spec, const SlicePlan& slice,
                                         uint32_t mlp_multiple, TensorType main_type,
                                         SliceBytes slice_bytes, const MemoryFlags& flags) {
  MemoryPlan plan;
  plan.types = ResolveCpuTypes(flags.dtype, flags.kv_dtype, main_type);
  plan.weights_bytes = WeightsBytes(slice_bytes(slice), main_type, flags);
  plan.workspace_bytes = WorkspaceBytes(spec, slice, flags);

  // A block id means the same on every rank, so all have as many blocks as fit for all together.
  plan.kv_groups = MakeKvGroups(spec);
  GroupBytes group;
  for (Rank rank = 0; rank < slice.world; ++rank) {
    WEFT_ASSIGN_OR_RETURN(SlicePlan other, MakeSlicePlan(spec, rank, slice.world, mlp_multiple));
    group.weights += WeightsBytes(slice_bytes(other), main_type, flags);
    group.workspace += WorkspaceBytes(spec, other, flags);
    group.block += KvShapeOf(spec, plan.kv_groups, other, plan.types.kv).block_bytes();
  }
  plan.kv_block_bytes = KvShapeOf(spec, plan.kv_groups, slice, plan.types.kv).block_bytes();
  plan.kv_block_tokens = kernels::cpu::kKvBlockTokens;
  const uint64_t blocks = flags.kv_memory_bytes / group.block;
  if (blocks < plan.kv_groups.count()) {
    return absl::ResourceExhaustedError(NoKvBlock(flags.kv_memory_bytes, plan.kv_groups.count(),
                                                  plan.kv_block_tokens, group.block));
  }
  // More than every sequence at full length would never be used.
  const uint64_t blocks_per_sequence =
      (uint64_t{spec.context_tokens} + kernels::cpu::kKvBlockTokens - 1) /
      kernels::cpu::kKvBlockTokens;
  const uint64_t usable =
      uint64_t{std::max(1u, flags.running_max)} * blocks_per_sequence * plan.kv_groups.count();
  plan.kv_capped = blocks > usable;
  plan.kv_blocks = static_cast<uint32_t>(std::min(blocks, usable));
  WEFT_RETURN_IF_ERROR(FitIntoHost(flags, slice.world, group, &plan));
  plan.kv_bytes = uint64_t{plan.kv_blocks} * plan.kv_block_bytes;
  return plan;
}

}  // namespace weft::shard

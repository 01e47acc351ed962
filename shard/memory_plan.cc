#include "shard/kv/memory_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "shard/device/cpu/workspace.h"
#include "shard/kv/kv_cache.h"

namespace weft::shard {
namespace {

// Bytes of one KV block of the rank that holds `slice`.
uint64_t KvBlockBytes(const DecoderSpec& spec, const SlicePlan& slice, NumberType kv) {
  const KvShape shape{KernelKvType(kv), spec.layers, slice.kv_heads.size(), spec.head_dim};
  return shape.block_bytes();
}

}  // namespace

absl::StatusOr<NumberType> ParseNumberType(absl::string_view text) {
  for (NumberType type :
       {NumberType::kAuto, NumberType::kFloat32, NumberType::kBfloat16, NumberType::kFloat16}) {
    if (text == NumberTypeName(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown number type '", text, "'; choose auto, float32, bfloat16 or float16"));
}

const char* NumberTypeName(NumberType type) {
  switch (type) {
    case NumberType::kAuto:
      return "auto";
    case NumberType::kFloat32:
      return "float32";
    case NumberType::kBfloat16:
      return "bfloat16";
    case NumberType::kFloat16:
      return "float16";
  }
  return "unknown";
}

uint32_t NumberTypeBytes(NumberType type) {
  WEFT_CHECK(type != NumberType::kAuto);
  return type == NumberType::kFloat32 ? 4 : 2;
}

kernels::cpu::KvType KernelKvType(NumberType type) {
  WEFT_CHECK(type != NumberType::kAuto);
  if (type == NumberType::kFloat32) return kernels::cpu::KvType::kF32;
  return type == NumberType::kFloat16 ? kernels::cpu::KvType::kF16 : kernels::cpu::KvType::kBf16;
}

absl::StatusOr<NumberTypes> ResolveTypes(NumberType dtype, NumberType kv_dtype,
                                         TensorType main_type) {
  if (dtype == NumberType::kFloat16) {
    return absl::InvalidArgumentError(
        "--dtype float16: CPU shards compute in float32 or bfloat16; float16 files keep their "
        "weights with --dtype auto or float32");
  }
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

std::string Describe(const MemoryPlan& plan) {
  const auto mib = [](uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); };
  std::string line = absl::StrCat("memory plan: weights ", mib(plan.weights_bytes), ", workspace ",
                                  mib(plan.workspace_bytes), ", KV pool ", mib(plan.kv_bytes), " (",
                                  uint64_t{plan.kv_blocks} * plan.kv_block_tokens, " tokens",
                                  plan.kv_capped ? ", all that --running-max uses" : "",
                                  "), together ", mib(plan.total_bytes()));
  if (plan.device_bytes == 0) return line;
  absl::StrAppend(&line, " of ", mib(plan.device_bytes), "; in use before ",
                  mib(plan.device_used_bytes), ", left ", mib(plan.left_bytes()));
  return line;
}

absl::StatusOr<MemoryPlan> PlanMemory(const DecoderSpec& spec, const SlicePlan& slice,
                                      uint32_t mlp_multiple, TensorType main_type,
                                      uint64_t slice_bytes, const MemoryFlags& flags) {
  MemoryPlan plan;
  WEFT_ASSIGN_OR_RETURN(plan.types, ResolveTypes(flags.dtype, flags.kv_dtype, main_type));
  // Packing keeps every bit; only an explicit bfloat16 halves float32 files.
  plan.weights_bytes = slice_bytes;
  if (flags.dtype == NumberType::kBfloat16 && main_type == TensorType::kF32) {
    plan.weights_bytes /= 2;
  }
  plan.workspace_bytes = Workspace::Bytes(
      spec, slice, WorkspaceLimits{flags.step_tokens_max, flags.running_max, flags.threads});

  // A block id means the same on every rank, so all have as many blocks as fit for all together.
  uint64_t all_ranks_block_bytes = 0;
  for (Rank rank = 0; rank < slice.world; ++rank) {
    WEFT_ASSIGN_OR_RETURN(SlicePlan other, MakeSlicePlan(spec, rank, slice.world, mlp_multiple));
    all_ranks_block_bytes += KvBlockBytes(spec, other, plan.types.kv);
  }
  plan.kv_block_bytes = KvBlockBytes(spec, slice, plan.types.kv);
  plan.kv_block_tokens = kernels::cpu::kKvBlockTokens;
  const uint64_t blocks = flags.kv_memory_bytes / all_ranks_block_bytes;
  if (blocks == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("--kv-memory ", flags.kv_memory_bytes, " bytes hold no KV block; one of ",
                     kernels::cpu::kKvBlockTokens, " tokens takes ", all_ranks_block_bytes,
                     " bytes on all ranks together"));
  }
  // More than every sequence at full length would never be used.
  const uint64_t blocks_per_sequence =
      (uint64_t{spec.context_tokens} + kernels::cpu::kKvBlockTokens - 1) /
      kernels::cpu::kKvBlockTokens;
  const uint64_t usable = uint64_t{std::max(1u, flags.running_max)} * blocks_per_sequence;
  plan.kv_capped = blocks > usable;
  plan.kv_blocks = static_cast<uint32_t>(std::min(blocks, usable));
  plan.kv_bytes = uint64_t{plan.kv_blocks} * plan.kv_block_bytes;
  return plan;
}

}  // namespace weft::shard

// What a CPU shard will hold in memory, computed from shapes and flags alone (invariant mem.plan):
// weights, workspace of the largest step, and the KV pool. Pure; used by the model runner before it
// takes anything, by Info, and by `weft inspect` for shard counts that are not running.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cpu/attention.h"
#include "shard/model/decoder_spec.h"
#include "shard/weights/slice_plan.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

// Type of activations or of the KV cache. kAuto is resolved by ResolveTypes.
enum class NumberType : uint8_t { kAuto, kFloat32, kBfloat16, kFloat16 };

// "auto", "float32", "bfloat16", "float16"; INVALID_ARGUMENT naming the choices otherwise.
absl::StatusOr<NumberType> ParseNumberType(absl::string_view text);
const char* NumberTypeName(NumberType type);
// Bytes of one element; REQUIRES: not kAuto.
uint32_t NumberTypeBytes(NumberType type);

struct MemoryFlags {
  NumberType dtype = NumberType::kAuto;
  NumberType kv_dtype = NumberType::kAuto;
  // KV pool of all ranks of the host together (--kv-memory). On CUDA, 0 = all that
  // memory_fraction leaves.
  uint64_t kv_memory_bytes = uint64_t{1} << 30;
  // CUDA: a row's numbers depend on its own sequence alone (--deterministic). The CPU's always do.
  bool deterministic = false;
  // Share of a GPU's memory that may be used (--memory-fraction).
  double memory_fraction = 0.9;
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
  uint32_t threads = 1;
};

struct NumberTypes {
  NumberType activation;
  NumberType kv;
};

// The kernels' name of a resolved KV type. REQUIRES: not kAuto.
kernels::cpu::KvType KernelKvType(NumberType type);

// Activations: bfloat16, but float32 when the files hold F32 or F16 matrices. KV: float32 with
// float32 activations, else float16, which costs what bfloat16 costs and keeps three more bits of
// each key. INVALID_ARGUMENT for --dtype float16, which CPU shards do not compute in, naming the
// flag and what works.
absl::StatusOr<NumberTypes> ResolveTypes(NumberType dtype, NumberType kv_dtype,
                                         TensorType main_type);

struct MemoryPlan {
  NumberTypes types;
  uint64_t weights_bytes = 0;
  uint64_t workspace_bytes = 0;
  // The pool of this rank: kv_blocks * kv_block_bytes.
  uint64_t kv_bytes = 0;
  // Bytes of one block on this rank, all layers, K and V.
  uint64_t kv_block_bytes = 0;
  // The same on every rank: block ids are common to all.
  uint32_t kv_blocks = 0;
  uint32_t kv_block_tokens = 0;
  // More would fit, but --running-max sequences of full length would not use it.
  bool kv_capped = false;
  // Of a GPU: its memory, and what was in use before. 0 = the host's memory.
  uint64_t device_bytes = 0;
  uint64_t device_used_bytes = 0;

  uint64_t total_bytes() const { return weights_bytes + workspace_bytes + kv_bytes; }
  // What nobody uses, on a GPU.
  uint64_t left_bytes() const { return device_bytes - device_used_bytes - total_bytes(); }
};

// The plan in one line, for the log.
std::string Describe(const MemoryPlan& plan);

// Plans rank `slice.rank` of `slice.world`. `slice_bytes` are the bytes of this rank's tensors in
// the files (ModelFiles::SliceBytes). RESOURCE_EXHAUSTED, naming --kv-memory and the least that
// works, when the pool could not hold one block.
absl::StatusOr<MemoryPlan> PlanMemory(const DecoderSpec& spec, const SlicePlan& slice,
                                      uint32_t mlp_multiple, TensorType main_type,
                                      uint64_t slice_bytes, const MemoryFlags& flags);

}  // namespace weft::shard

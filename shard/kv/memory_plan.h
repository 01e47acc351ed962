// What a shard will hold in memory (invariant mem.plan), and the flags that decide it: weights,
// workspace of the largest step, and the KV pool. Plain data. Each kind of device computes its own
// plan, before it takes anything: shard/device/cpu/memory_plan.h, shard/device/cuda/memory_plan.h.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/cgroup.h"
#include "shard/kv/kv_groups.h"

namespace weft::shard {

// Type of activations or of the KV cache. Each kind of device resolves kAuto in its own way.
enum class NumberType : uint8_t { kAuto, kFloat32, kBfloat16, kFloat16 };

// "auto", "float32", "bfloat16", "float16"; INVALID_ARGUMENT naming the choices otherwise.
absl::StatusOr<NumberType> ParseNumberType(absl::string_view text);
const char* NumberTypeName(NumberType type);

struct MemoryFlags {
  NumberType dtype = NumberType::kAuto;
  NumberType kv_dtype = NumberType::kAuto;
  // KV pool of all ranks of the host together (--kv-memory). On CUDA, 0 = all that
  // memory_fraction leaves.
  uint64_t kv_memory_bytes = uint64_t{1} << 30;
  // It was asked for by name: a pool that does not fit is refused, and not made smaller.
  bool kv_memory_asked = false;
  // CPU: what all shards of the host and their router may take together; 0 bytes = no limit.
  MemoryLimit host;
  // CUDA: a row's numbers depend on its own sequence alone (--deterministic). The CPU's always do.
  bool deterministic = false;
  // Rows of each expert are counted (--expert-load). Of rank 0 alone: all ranks choose alike.
  bool expert_load = false;
  // Share of a GPU's memory that may be used (--memory-fraction).
  double memory_fraction = 0.9;
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
  uint32_t threads = 1;
  // Why so many, as "2 cores / 2 shards".
  std::string threads_reason;
};

struct NumberTypes {
  NumberType activation;
  NumberType kv;
};

struct MemoryPlan {
  NumberTypes types;
  uint64_t weights_bytes = 0;
  uint64_t workspace_bytes = 0;
  // The pool of this rank: kv_blocks * kv_block_bytes.
  uint64_t kv_bytes = 0;
  // Bytes of one block on this rank: the layers of any one KV group, K and V.
  uint64_t kv_block_bytes = 0;
  KvGroups kv_groups;
  // The same on every rank: block ids are common to all.
  uint32_t kv_blocks = 0;
  uint32_t kv_block_tokens = 0;
  // More would fit, but --running-max sequences of full length would not use it.
  bool kv_capped = false;
  // Of a GPU: its memory, and what was in use before. 0 = the host's memory.
  uint64_t device_bytes = 0;
  uint64_t device_used_bytes = 0;
  // Of CPU shards: what all of them and the router take, at most, of the host's memory, and its
  // limit. 0 = not held against one.
  uint64_t host_used_bytes = 0;
  MemoryLimit host;
  // The pool that was to be had without the limit; 0 when it made no difference.
  uint64_t kv_bytes_unlimited = 0;

  // Tokens that the pool holds when no window has let go of any.
  uint64_t kv_tokens() const {
    return uint64_t{kv_blocks} / std::max(1u, kv_groups.count()) * kv_block_tokens;
  }
  uint64_t total_bytes() const { return weights_bytes + workspace_bytes + kv_bytes; }
  // What nobody uses, on a GPU.
  uint64_t left_bytes() const { return device_bytes - device_used_bytes - total_bytes(); }
};

// Why --kv-memory is too small: every KV group needs a block, and one takes `block_bytes` on all
// ranks together.
std::string NoKvBlock(uint64_t kv_memory_bytes, uint32_t kv_groups, uint32_t block_tokens,
                      uint64_t block_bytes);

// The plan in one line, for the log.
std::string Describe(const MemoryPlan& plan);

}  // namespace weft::shard

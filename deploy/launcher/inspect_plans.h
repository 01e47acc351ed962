// What a model needs in memory at several shard counts, for `weft inspect`: CPU shards of a host,
// or GPU shards of a given device. From the files' headers alone; nothing is loaded. Main thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/flags.h"
#include "shard/device/cuda/planning.h"
#include "shard/kv/memory_plan.h"
#include "shard/kv/memory_texts.h"
#include "shard/weights/loader.h"

namespace weft::launcher {

// Flags as they are typed; those of weft-shard mean the same here.
struct PlanOptions {
  std::string device = "auto";
  // Memory of each GPU; auto = that of the one found, else of an H200.
  std::string device_memory = "auto";
  shard::MemoryTexts memory;
};

// Declares them on `flags`, filled into *options (which must outlive the parse).
void DeclarePlanFlags(Flags& flags, PlanOptions* options);

// One shard count. The largest rank is what a host or a GPU must hold.
struct WorldPlan {
  uint32_t world = 0;
  // Why this count does not work; empty = it does.
  std::string refusal;
  uint64_t weights_bytes_max = 0;
  uint64_t workspace_bytes_max = 0;
  // Pool of the largest rank, and of all.
  uint64_t kv_bytes_max = 0;
  uint64_t kv_bytes_all = 0;
  // On all ranks together, of a token that no window has let go of, and of one KV block.
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_block_bytes = 0;
  uint32_t kv_block_tokens = 0;
  // Of context, over all sequences, before windows let go of any.
  uint64_t kv_tokens = 0;
  // The pool is smaller than memory allows: more tokens could not be in use.
  bool kv_capped = false;
  // Of a GPU, what nobody uses.
  uint64_t left_bytes_min = 0;
};

struct ModelPlans {
  // Set when GPU shards were planned.
  bool cuda = false;
  // Why --device auto planned CPU shards; empty otherwise.
  std::string no_gpu;
  shard::PlannedGpu gpu;
  double memory_fraction = 0;
  std::vector<WorldPlan> worlds;
};

// One rank of `world`, on a GPU like `plans.gpu` or on the CPU. The error says why this count does
// not work.
absl::StatusOr<shard::MemoryPlan> PlanRank(const shard::ModelFiles& files, uint32_t rank,
                                           uint32_t world, const shard::MemoryFlags& flags,
                                           const ModelPlans& plans);

// Rank 0 of a group.
struct RankPlan {
  bool cuda = false;
  shard::SlicePlan slice;
  shard::MemoryFlags flags;
  shard::MemoryPlan memory;
};
// Errors as PlanModel's, and why this count does not work.
absl::StatusOr<RankPlan> PlanFirstRank(const shard::ModelFiles& files, uint32_t world,
                                       const PlanOptions& options);

// For 1, 2, 4 and 8 shards. INVALID_ARGUMENT naming the flag; UNIMPLEMENTED for GPUs in a build
// without CUDA. A count that does not work is no error: its entry says why.
absl::StatusOr<ModelPlans> PlanModel(const shard::ModelFiles& files, const PlanOptions& options);

// What was taken for granted about the GPU, or why there is none, one line; empty when CPU shards
// were asked for.
std::string Assumptions(const ModelPlans& plans);

// OK when a count works; otherwise FAILED_PRECONDITION.
absl::Status SomeCountWorks(const ModelPlans& plans);

}  // namespace weft::launcher

// What a model needs in memory at several shard counts, for `weft inspect`: CPU shards of a host,
// or GPU shards of a given device. From the files' headers alone; nothing is loaded. Main thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flags.h"
#include "shard/cuda_planning.h"
#include "shard/memory_plan.h"
#include "shard/weights/loader.h"

namespace weft::launcher {

// Flags as they are typed; those of weft-shard mean the same here.
struct PlanOptions {
  std::string device = "auto";
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  // 0 = as weft-shard's auto.
  uint64_t kv_memory_bytes = 0;
  double memory_fraction = 0.9;
  // Memory of each GPU; 0 = that of the one found, else of an H200.
  uint64_t device_memory_bytes = 0;
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
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
  // On all ranks together.
  uint64_t kv_bytes_per_token = 0;
  // Of context, over all sequences.
  uint64_t kv_tokens = 0;
  // Of a GPU, what nobody uses.
  uint64_t left_bytes_min = 0;
};

struct ModelPlans {
  // Set when GPU shards were planned.
  bool cuda = false;
  shard::PlannedGpu gpu;
  double memory_fraction = 0;
  std::vector<WorldPlan> worlds;
};

// For 1, 2, 4 and 8 shards. INVALID_ARGUMENT naming the flag; UNIMPLEMENTED for GPUs in a build
// without CUDA. A count that does not work is no error: its entry says why.
absl::StatusOr<ModelPlans> PlanModel(const shard::ModelFiles& files, const PlanOptions& options);

// What was taken for granted about the GPU, one line; empty for CPU shards.
std::string Assumptions(const ModelPlans& plans);

}  // namespace weft::launcher

// What the CPU's kernels serve, as data, and a model held against it. Asked before anything is
// loaded, and by `weft inspect`. Pure, any thread.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "shard/device/served_ops.h"
#include "shard/kv/memory_plan.h"
#include "shard/model/plan_rules.h"
#include "shard/weights/loader.h"

namespace weft::shard {

const ServedOps& CpuServedOps();

// Errors of CheckServed, for the plan that `rules` make for a group of `world` ranks.
absl::Status CheckCpuServes(const ModelFiles& files, uint32_t world, const MemoryFlags& flags,
                            absl::Span<const PlanRule* const> rules);

}  // namespace weft::shard

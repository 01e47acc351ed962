// What a CPU shard makes of a recorded forward: which rules of shard/model/plan_rules.h its kernels
// serve. All are exact. Pure, at load.

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/layer_plan.h"
#include "shard/model/plan_rules.h"

namespace weft::shard {

// In the order in which they are applied.
absl::Span<const PlanRule* const> CpuPlanRules();
// The plan of all steps, by these of them. REQUIRES: `rules` are of CpuPlanRules().
LayerPlan MakeCpuPlan(const DecoderSpec& spec, uint32_t world,
                      absl::Span<const PlanRule* const> rules);

}  // namespace weft::shard

#include "shard/device/cpu/planner.h"

#include "shard/model/decoder.h"

namespace weft::shard {

absl::Span<const PlanRule* const> CpuPlanRules() {
  static constexpr const PlanRule* kRules[] = {&kBiasIntoProduct, &kActivationIntoProduct,
                                               &kResidualIntoProduct, &kResidualIntoSum};
  return kRules;
}

LayerPlan MakeCpuPlan(const DecoderSpec& spec, uint32_t world,
                      absl::Span<const PlanRule* const> rules) {
  LayerPlan plan = RecordForward(spec, world);
  ApplyRules(rules, &plan);
  return plan;
}

}  // namespace weft::shard

#include "shard/device/forward.h"

#include "common/status.h"

namespace weft::shard {
namespace {

// The plan of the tail follows from how many rows it works on.
absl::Status WalkTail(Ops& ops) {
  const StepPlan plan = ops.plan();
  for (const PlanOp& op : plan.tail) {
    WEFT_RETURN_IF_ERROR(ops.Execute(op, PlanPart::kTail));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WalkPlan(Ops& ops, StepResult* result) {
  const StepPlan plan = ops.plan();
  for (const PlanOp& op : plan.body) WEFT_RETURN_IF_ERROR(ops.Execute(op, PlanPart::kBody));
  for (uint32_t slice = 0; slice < ops.score_slices(); ++slice) {
    WEFT_RETURN_IF_ERROR(ops.BeginSlice(slice));
    WEFT_RETURN_IF_ERROR(WalkTail(ops));
    WEFT_RETURN_IF_ERROR(ops.ScoreSlice(result));
  }
  // A step of prompt chunks in the middle of their prompts samples nothing.
  if (ops.sampled_rows() > 0) WEFT_RETURN_IF_ERROR(WalkTail(ops));
  result->weight_passes = ops.WeightPasses();
  return absl::OkStatus();
}

absl::Status RunForward(const StepBatch& batch, Ops& ops, StepResult* result) {
  WEFT_RETURN_IF_ERROR(ops.BeginStep(batch));
  WEFT_RETURN_IF_ERROR(WalkPlan(ops, result));
  return ops.sampled_rows() > 0 ? ops.Sample(result) : absl::OkStatus();
}

}  // namespace weft::shard

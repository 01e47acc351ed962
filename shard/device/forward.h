// The walk over the plan of a step, the same on every device. Called by a model runner on its
// device thread. Holds no state.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "shard/device/ops.h"
#include "shard/step_batch.h"

namespace weft::shard {

// Runs a step with at least one sequence and fills `result` except its timings.
absl::Status RunForward(const StepBatch& batch, Ops& ops, StepResult* result);
// The part between Ops::BeginStep and Ops::Sample: up to the logits of the rows that sample.
absl::Status WalkPlan(Ops& ops, StepResult* result);

}  // namespace weft::shard

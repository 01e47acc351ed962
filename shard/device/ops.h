// What the walk over a plan (forward.h) asks of a device: to begin a step, to run the operations of
// the plan that its rows call for, and to sample. Weights, KV pool and activations live on the
// device and are named by the plan, never by pointer. Calls are made by the device thread, in one
// order on all ranks (invariant rank.same); an accelerator may run them later, in that order.
// Implemented by shard/device/cpu and shard/device/cuda.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "shard/model/layer_plan.h"
#include "shard/step_batch.h"

namespace weft::shard {

// The operations of a step: the body of one plan and the tail of one, perhaps another
// (layer_plan.h).
struct StepPlan {
  absl::Span<const PlanOp> body;
  absl::Span<const PlanOp> tail;
};

// Which rows an operation works on: all of the step, or those that are kept: they sample, or are a
// slice of those that are scored.
enum class PlanPart : uint8_t { kBody, kTail };

class Ops {
 public:
  virtual ~Ops() = default;

  // Takes the step's inputs to the device: ids (those of from_last_sample rows are the slot's last
  // sampled token), positions, block tables. `batch` outlives the step.
  virtual absl::Status BeginStep(const StepBatch& batch) = 0;

  // Of the step that has begun: its operations, and how many rows sample a token.
  virtual StepPlan plan() const = 0;
  virtual uint32_t sampled_rows() const = 0;

  // Rows that are scored go through the tail by themselves, in slices of as many rows as may
  // sample, so that their logits need no memory of their own. Slices of the step that has begun.
  virtual uint32_t score_slices() const = 0;
  // The tail that follows works on the rows of slice `slice`: each once, ascending, all of them
  // before the tail of the rows that sample.
  virtual absl::Status BeginSlice(uint32_t slice) = 0;
  // Scores the rows of the slice whose tail has run; adds to `result->scores`.
  virtual absl::Status ScoreSlice(StepResult* result) = 0;

  // Runs or launches one operation. An error leaves device state undefined: the epoch ends
  // (invariant scope.one).
  virtual absl::Status Execute(const PlanOp& op, PlanPart part) = 0;

  // Samples one token per kept row, updates the slots' device state and fills slots, ids and
  // logprobs of `result`.
  virtual absl::Status Sample(StepResult* result) = 0;

  // How often this step has read the layers' matrices: 1 unless its rows were split, 0 where nobody
  // counts.
  virtual uint32_t WeightPasses() const = 0;
};

}  // namespace weft::shard

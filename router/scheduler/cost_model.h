// What a step costs: device microseconds from the number of token rows and the summed context. Rows
// of all kinds cost the same (a mixed step is one flat batch); one row reads all weights, many rows
// compute, so the cost over rows is a curve: linear between knots at powers of two. Attention adds
// a cost per context token. First points come from Warmup; every answered step corrects the knots
// beside it. Pure arithmetic, the same inputs give the same answers. Part of the scheduler.

#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "router/scheduler/events.h"
#include "router/scheduler/scheduler_state.h"

namespace weft::router {

struct StepShape {
  uint32_t rows = 0;
  uint32_t prompt_tokens = 0;
  // Sum over the step's sequences of the positions their last row attends to.
  uint64_t context_tokens = 0;
};

class CostModel {
 public:
  // Starts over from measured points; without any, the first observation is the first point.
  void Reset(absl::Span<const GroupInfo::Cost> points);

  // Corrects the model by a measured step.
  void Observe(const StepShape& shape, uint32_t measured_us);

  // Its part of a scheduler's state, and the way back.
  void Save(SchedulerState* state) const;
  absl::Status Restore(const SchedulerState& state);

  // 0 while nothing is known.
  double StepUs(const StepShape& shape) const;

  // The most prompt tokens, at most `tokens_max`, that keep a step with these rows within target_us
  // when the prompt already has `prompt_start` tokens of context; 0 when not even one does.
  uint32_t PromptTokensWithin(StepShape rows, uint32_t prompt_start, uint32_t tokens_max,
                              uint32_t target_us) const;

 private:
  // 1, 2, 4 .. 2^14 rows (kStepTokensMax).
  static constexpr int kKnots = 15;

  // Where a row count lies: knot `low` with 1 - high_share, the next with high_share.
  struct Place {
    int low;
    double high_share;
  };
  static Place Locate(uint32_t tokens);

  bool known_ = false;
  // Microseconds at 2^i rows without context. Never falling.
  std::array<double, kKnots> knots_us_{};
  double context_token_us_ = 0;
};

}  // namespace weft::router

// Whoever listens to all that a scheduler is told and all that it decides, so that both can be
// recorded and played again (router/recording). The scheduler calls it after each event, on its
// thread. It must not wait, and of the scheduler it may call views only.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/scheduler/events.h"
#include "router/scheduler/step_plan.h"

namespace weft::router {

// Each call is the event of that name in scheduler.h and what came of it; `ended` holds the records
// of this event alone.
class EventTap {
 public:
  virtual ~EventTap() = default;

  virtual void OnGroupFormed(const GroupInfo& group, int64_t now_us,
                             absl::Span<const Ended> ended) = 0;
  virtual void OnGroupLost(int64_t now_us, absl::Span<const Ended> ended) = 0;
  // `arrival` without its prompt, which had so many tokens.
  virtual void OnArrival(const Arrival& arrival, uint32_t prompt_tokens, int64_t now_us,
                         const absl::Status& status) = 0;
  virtual void OnCutLimit(SequenceId id, uint32_t tokens_max, int64_t now_us,
                          const absl::Status& status) = 0;
  virtual void OnCancel(SequenceId id, int64_t now_us, absl::Span<const Ended> ended) = 0;
  virtual void OnFlush(int64_t now_us) = 0;
  virtual void OnStepDone(StepNumber step, const StepTime& time, int64_t now_us,
                          absl::Span<const Emitted> emitted, absl::Span<const Ended> ended) = 0;
  // `plan` is null when there was nothing to do.
  virtual void OnPlan(const StepPlan* plan, int64_t now_us) = 0;
};

}  // namespace weft::router

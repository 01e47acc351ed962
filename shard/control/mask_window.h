// The masks of the steps of one epoch that are not answered yet. A step and its masks come by
// different calls, in any order: whichever is first makes the entry. Part of the executor's state,
// guarded by its lock; never blocks. Bounded by the window of steps (step_order.h).

#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "shard/control/step_order.h"
#include "shard/heartbeat.h"
#include "shard/step_masks.h"

namespace weft::shard {

class MaskWindow {
 public:
  // `heartbeat` as of StepMasks.
  explicit MaskWindow(Heartbeat* heartbeat = nullptr) : heartbeat_(heartbeat) {}

  // Those of `step`, where the oldest unanswered step is `unanswered`. ALREADY_EXISTS for one that
  // has been answered, FAILED_PRECONDITION for one beyond the window, INVALID_ARGUMENT for step 0.
  absl::StatusOr<std::shared_ptr<StepMasks>> Of(StepNumber step, StepNumber unanswered);
  // The same if anybody has asked for them; else null.
  std::shared_ptr<StepMasks> Find(StepNumber step) const;
  // Nobody waits for masks of this epoch any more.
  void Abort();

 private:
  struct Entry {
    StepNumber step = 0;
    std::shared_ptr<StepMasks> masks;
  };
  Heartbeat* const heartbeat_;
  std::array<Entry, StepOrder::kWindow> entries_;
};

}  // namespace weft::shard

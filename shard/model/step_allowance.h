// How long a device may work on a step before it looks hung: generous, so that no step that works
// is cut short, and bounded, so that a kernel that hangs is found. Counted from the end of the step
// before, or from the launch where the device was idle. The rule for everything that waits for a
// step:
//   - while the work launched is within its allowance, the device thread counts as alive;
//   - past it, the router's hang time-out runs, and the shard itself gives the step up after its
//     peers' time-out (--peer-timeout-s), on top of the allowance in both cases;
//   - an epoch that ends waits for the allowance of what is launched, then kLeaveIdleUs.
// Pure; used by the device thread.

#pragma once

#include <cstdint>

#include "shard/model/decoder_spec.h"
#include "shard/step_batch.h"

namespace weft::shard {

class StepAllowance {
 public:
  // One rank of `world`.
  StepAllowance(const DecoderSpec& spec, uint32_t world);

  // A step of prompt chunks took so long in the warm-up: the slowest rate counts.
  void Learn(const StepBatch& batch, int64_t device_us);
  // What a step may take, at most kStepAllowedUsMax; 5 s before anything was learned.
  int64_t AllowedUs(const StepBatch& batch) const;

 private:
  // Operations of this rank's part of the step.
  double Work(const StepBatch& batch) const;

  double work_of_token_;
  // Of one token attending to one position.
  double work_of_pair_;
  double us_of_work_ = 0;
};

}  // namespace weft::shard

// The answer of a step that ran, as the wire has it, and the check that a device's result is one of
// its step. Pure functions; used by the executor's two threads.

#pragma once

#include "absl/status/status.h"
#include "shard/step_batch.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// INTERNAL unless the result has one row for each sequence that samples, and the scores that were
// asked for.
absl::Status CheckResult(const StepBatch& batch, const StepResult& result);

// All but the timings. `with_ids`: as rank 0 answers. REQUIRES: CheckResult.
void FillResponse(const StepBatch& batch, const StepResult& result, bool with_ids,
                  v1::StepResponse* response);

}  // namespace weft::shard

// The steps that a warm-up runs: sequences of equal length that nobody asked for. Shared by the
// model runners of all devices, device thread only; runs nothing itself, and looks at what came of
// it.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "shard/step_batch.h"

namespace weft::shard {

struct WarmupShape {
  // Sequences in slots 0 .. rows - 1, each with `tokens` new tokens from `start` on.
  uint32_t rows = 1;
  uint32_t tokens = 1;
  uint32_t start = 0;
  // The tokens are the last sampled ones; else they have id 0.
  bool from_last_sample = false;
};

// The pool that they use. All > 0.
struct WarmupPool {
  uint32_t block_tokens = 0;
  uint32_t blocks = 0;
  uint32_t kv_groups = 1;
};

// Every table has blocks of its own while the pool has enough; a smaller pool is written over and
// over, and nobody reads the tokens.
StepBatch MakeWarmupBatch(const WarmupShape& shape, const WarmupPool& pool);

// DATA_LOSS when the step gave logits that are no numbers, which only a broken model does.
// REQUIRES: a step from position 0 on, which has read nothing of the pool that it did not write.
absl::Status CheckWarmupResult(const StepResult& result);

}  // namespace weft::shard

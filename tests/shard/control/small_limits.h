// A shard so small that steps of a few tokens reach its limits. For tests, and for the fuzzer,
// which has no Catch2.

#pragma once

#include "shard/control/step_inputs.h"

namespace weft::shard {

inline StepLimits SmallLimits() {
  StepLimits limits;
  limits.vocab_size = 100;
  limits.context_tokens = 64;
  limits.running_max = 4;
  limits.step_tokens_max = 20;
  limits.block_tokens = 4;
  limits.kv_blocks = 32;
  return limits;
}

}  // namespace weft::shard

// Models against what transformers computed in float32 (tests/goldens): log-probabilities and
// greedy continuations, on any group of ranks. Uses Catch's checks; one thread.

#pragma once

#include <cstddef>
#include <string>

#include "tests/shard/device/cpu/rank_group.h"

namespace weft::shard {

// Checks one tiny model: log-probabilities within `logprob_error` after each recorded prefix, and
// with `greedy` the very same continuations.
void CheckModel(const std::string& name, const GroupOptions& options, double logprob_error = 1e-3,
                bool greedy = true);

// How far log-probabilities in bfloat16 may be from those in float32: eight bits of mantissa in
// weights, activations and cache.
double Bfloat16Error(const std::string& name);

struct Agreement {
  size_t cases = 0;
  size_t equal = 0;
  // Differences that begin where the golden's top two logits are further apart than the margin.
  size_t unexplained = 0;
  double largest_margin = 0;
};

// Continues the demo model's recorded prompts; without that model the test is skipped.
Agreement CompareDemo(GroupOptions options, double margin);

}  // namespace weft::shard

// A short script of steps over any group of ranks, for comparing plans of the same model: a prompt
// in two chunks, the second beside a decoding sequence, then decode steps of both.

#pragma once

#include <vector>

#include "tests/shard/device/cpu/rank_group.h"

namespace weft::shard {

struct PlanTrace {
  // In the order in which they were sampled.
  std::vector<TokenId> ids;
  std::vector<float> logprobs;

  bool operator==(const PlanTrace& other) const {
    return ids == other.ids && logprobs == other.logprobs;
  }
};

// 15 tokens at `temperature`, with their log-probabilities.
PlanTrace RunScript(const GroupOptions& options, float temperature = 0.8f);

}  // namespace weft::shard

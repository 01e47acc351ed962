#include "shard/sampling/row_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ids.h"

namespace weft::shard {

RowStats StatsOf(const kernels::cpu::Kernels& kernels, const float* logits, int64_t columns) {
  RowStats stats{kernels.max(logits, columns), 0};
  stats.sum = kernels.exp_sum(logits, columns, stats.max, 1.0f, nullptr);
  return stats;
}

double LogSumExp(uint32_t world, absl::FunctionRef<RowStats(uint32_t rank)> stats) {
  float best = -std::numeric_limits<float>::infinity();
  for (uint32_t rank = 0; rank < world; ++rank) best = std::max(best, stats(rank).max);
  double sum = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const RowStats of_rank = stats(rank);
    sum += of_rank.sum * std::exp(static_cast<double>(of_rank.max) - best);
  }
  return best + std::log(sum);
}

void KeepBest(uint32_t n, std::vector<Candidate>* candidates) {
  candidates->erase(std::remove_if(candidates->begin(), candidates->end(),
                                   [](const Candidate& one) { return one.id == kNoToken; }),
                    candidates->end());
  std::sort(candidates->begin(), candidates->end(), kernels::cpu::Precedes);
  if (candidates->size() > n) candidates->resize(n);
}

}  // namespace weft::shard

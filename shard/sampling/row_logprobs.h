// Log-probabilities of a row of logits that ranks have slices of: what each rank says of its slice,
// and what follows from all of that. Sampler and scorer share it, so that a token has the same
// log-probability as output and as prompt, to the bit. Pure functions, any thread.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/kernels.h"
#include "shard/sampling/filters.h"

namespace weft::shard {

// Of the model's distribution over one rank's slice.
struct RowStats {
  float max;
  float sum;
};

RowStats StatsOf(const kernels::cpu::Kernels& kernels, const float* logits, int64_t columns);

// log(sum of exp) of a whole row; NaN when it holds NaN or +infinity, or nothing finite.
double LogSumExp(uint32_t world, absl::FunctionRef<RowStats(uint32_t rank)> stats);

// The `n` best of the candidates that ranks have named, best first; places that a rank had no token
// for (kNoToken) are left out.
void KeepBest(uint32_t n, std::vector<Candidate>* candidates);

}  // namespace weft::shard

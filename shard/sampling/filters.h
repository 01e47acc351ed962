// The filters of sampling on a list of candidate tokens, in the order top-k, typical-p, top-p,
// min-p, each on the renormalised survivors of the one before, ties to the lowest id. Pure
// functions of scores and parameters, the same on every rank; called by compute threads with
// scratch of their own. Definitions are those of transformers' logits warpers
// (generation/logits_process.py); a tie at the edge is cut by id instead of kept whole.
//
// A score is a logit after bias and penalties, not yet divided by the temperature. Lists need no
// order and keep none.

#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "kernels/cpu/kernels.h"
#include "shard/step_batch.h"

namespace weft::shard {

using Candidate = kernels::cpu::TokenScore;

// Buffers that the filters reuse from row to row; one per compute thread.
struct FilterScratch {
  // What a filter orders by (smaller is kept first), the probability weight, and the token.
  struct Ranked {
    float key;
    float weight;
    Candidate candidate;
  };
  std::vector<Ranked> ranked;
  std::vector<Ranked> edge;
  std::vector<float> values;
};

// Sets `candidates` to the survivors among all `count` scores of the vocabulary. REQUIRES: a filter
// is on. Tokens at -infinity never survive.
void FilterScores(const kernels::cpu::Kernels& kernels, const SamplingParams& params,
                  const float* scores, int64_t count, FilterScratch* scratch,
                  std::vector<Candidate>* candidates);

// The filters after top-k, on the candidates as they are. `total` is the weight of the distribution
// that they are part of, sum of exp((score - best) / temperature); 0 = they are all of it.
void FilterCandidates(const kernels::cpu::Kernels& kernels, const SamplingParams& params,
                      double total, FilterScratch* scratch, std::vector<Candidate>* candidates);

}  // namespace weft::shard

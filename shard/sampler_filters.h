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
  std::vector<float> values;
};

// Sets `out` to tokens that include every survivor of top-p (and of min-p after it): those close
// enough to the best score, usually a small part of the `count` scores. ids start at first_id.
// `*total` becomes the weight of all tokens, sum of exp((score - best) / temperature): KeepTopP
// needs it, as `out` lacks the unlikely rest.
void SelectLikely(const kernels::cpu::Kernels& kernels, const float* scores, int64_t count,
                  TokenId first_id, float temperature, float top_p, float min_p,
                  std::vector<Candidate>* out, double* total);

// Keeps the tokens whose information content is closest to the entropy, until their mass reaches
// `mass`.
void KeepTypical(const kernels::cpu::Kernels& kernels, float temperature, float mass,
                 FilterScratch* scratch, std::vector<Candidate>* candidates);

// Keeps the most likely tokens until their mass reaches `mass` of `total` (see SelectLikely); 0 =
// the candidates are all there is.
void KeepTopP(const kernels::cpu::Kernels& kernels, float temperature, float mass, double total,
              FilterScratch* scratch, std::vector<Candidate>* candidates);

// Keeps tokens with at least `share` of the best token's probability.
void KeepMinP(const kernels::cpu::Kernels& kernels, float temperature, float share,
              FilterScratch* scratch, std::vector<Candidate>* candidates);

}  // namespace weft::shard

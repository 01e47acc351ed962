// Results of the sampling kernels (the functions are in kernels.h) and the scalar pieces that work
// on short candidate lists. Pure functions, any thread, no allocation.

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {

struct TokenScore {
  uint32_t id = 0;
  float score = 0.0f;
};

// True when a goes before b: higher score, or the same score and the lower id.
bool Precedes(const TokenScore& a, const TokenScore& b);

// logits[ids[i] - first_id] += biases[i] for the ids inside [first_id, first_id + count).
void ApplyBias(const uint32_t* ids, const float* biases, int64_t bias_count, uint32_t first_id,
               float* logits, int64_t count);

// The draw over a candidate list: argmax of score / temperature + noise(seed, position, id), ties
// to the lowest id; the same bits as Kernels::gumbel_arg_max gives for these tokens. count >= 1.
TokenScore GumbelArgMaxOfCandidates(const TokenScore* candidates, int64_t count, float temperature,
                                    uint64_t seed, uint64_t position);

}  // namespace weft::kernels::cpu

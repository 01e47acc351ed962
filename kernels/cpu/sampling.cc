#include "kernels/cpu/sampling.h"

#include <cstdint>

#include "kernels/philox.h"

namespace weft::kernels::cpu {

bool Precedes(const TokenScore& a, const TokenScore& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

void ApplyBias(const uint32_t* ids, const float* biases, int64_t bias_count, uint32_t first_id,
               float* logits, int64_t count) {
  for (int64_t i = 0; i < bias_count; ++i) {
    const int64_t index = static_cast<int64_t>(ids[i]) - static_cast<int64_t>(first_id);
    if (index >= 0 && index < count) logits[index] += biases[i];
  }
}

TokenScore GumbelArgMaxOfCandidates(const TokenScore* candidates, int64_t count, float temperature,
                                    uint64_t seed, uint64_t position) {
  TokenScore best;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t id = candidates[i].id;
    const float scaled = candidates[i].score / temperature;
    const TokenScore token{id, scaled + TokenNoise(seed, position, id)};
    if (i == 0 || Precedes(token, best)) best = token;
  }
  return best;
}

}  // namespace weft::kernels::cpu

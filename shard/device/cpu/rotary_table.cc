#include "shard/device/cpu/rotary_table.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace weft::shard {

RotaryTable::RotaryTable(const RopeSpec& rope, uint32_t context_tokens, float* cosines,
                         float* sines)
    : inverse_frequencies_(RopeInverseFrequencies(rope)),
      factor_(rope.attention_factor),
      pairs_(rope.dims / 2),
      context_tokens_(context_tokens),
      cosines_(cosines),
      sines_(sines) {
  WEFT_CHECK_EQ(inverse_frequencies_.size(), size_t{pairs_});
}

void RotaryTable::Extend(uint32_t end) {
  if (end <= end_) return;
  WEFT_CHECK_LE(end, context_tokens_);
  const uint32_t wanted =
      std::min(context_tokens_, (end + kPageTokens - 1) / kPageTokens * kPageTokens);
  for (uint32_t position = end_; position < wanted; ++position) {
    float* const cosine = cosines_ + uint64_t{position} * pairs_;
    float* const sine = sines_ + uint64_t{position} * pairs_;
    for (uint32_t i = 0; i < pairs_; ++i) {
      const float angle = static_cast<float>(position) * inverse_frequencies_[i];
      cosine[i] = factor_ * std::cos(angle);
      sine[i] = factor_ * std::sin(angle);
    }
  }
  end_ = wanted;
}

}  // namespace weft::shard

// A watermark by green lists (Kirchenbauer et al., "A Watermark for Large Language Models"): each
// token has half of the vocabulary as the green list of what follows it, green tokens are a little
// more likely, and who knows the lists can count them in a text. Anybody can: the lists follow from
// the token alone, and docs/API.md says how.

#pragma once

#include <cstdint>
#include <memory>

#include "common/ids.h"
#include "router/engine/constraint.h"
#include "router/scatter.h"

namespace weft::router {

// The logits of tokens that are not green are lower by this; TGI's default.
inline constexpr float kWatermarkBias = 2.0f;
// TGI's default too.
inline constexpr uint64_t kWatermarkKey = 15485863;

// Bit i: whether id 64 * word + i is on the green list of what follows `before`.
inline uint64_t GreenBits(TokenId before, uint32_t word) {
  return Scatter(((uint64_t{before} << 32) | word) + kWatermarkKey);
}

// Allows the green list of the token before, which is at first the prompt's last; for a request
// whose sampling.mask_penalty is kWatermarkBias. One object an answer, used by one thread at a
// time.
std::unique_ptr<TokenConstraint> PreferGreen(TokenId last_of_prompt);

}  // namespace weft::router

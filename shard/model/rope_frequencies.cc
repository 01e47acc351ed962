// Rotary frequencies of a RopeSpec, after transformers' modeling_rope_utils.py.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "common/check.h"
#include "shard/model/decoder_spec.h"

namespace weft::shard {
namespace {

// Llama 3.1's scaling of one inverse frequency: short waves stay, long ones are stretched by
// `factor`, those between are blended (_compute_llama3_parameters).
float Llama3Frequency(const RopeSpec& rope, float frequency) {
  const float context = static_cast<float>(rope.original_context_tokens);
  const float wave = 2.0f * std::numbers::pi_v<float> / frequency;
  if (wave > context / rope.low_freq_factor) return frequency / rope.factor;
  if (wave < context / rope.high_freq_factor) return frequency;
  const float smooth =
      (context / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN (_compute_yarn_parameters): which share of the stretched frequency a pair has grows from 0
// to 1 between the pairs that turn beta_fast and beta_slow times in the original context.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeSpec& rope) {
    const double last = rope.dims - 1;
    double low = PairAt(rope, rope.beta_fast);
    double high = PairAt(rope, rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, last);
    // Against a division by zero.
    if (low == high) high += 0.001;
    low_ = static_cast<float>(low);
    width_ = static_cast<float>(high - low);
  }

  float Stretched(uint32_t pair) const {
    return std::clamp((static_cast<float>(pair) - low_) / width_, 0.0f, 1.0f);
  }

 private:
  // The pair, as a real number, that turns so often.
  static double PairAt(const RopeSpec& rope, double turns) {
    const double wave = rope.original_context_tokens / (turns * 2 * std::numbers::pi);
    return rope.dims * std::log(wave) / (2 * std::log(double{rope.theta}));
  }

  float low_;
  float width_;
};

}  // namespace

std::vector<float> RopeInverseFrequencies(const RopeSpec& rope) {
  std::vector<float> out(rope.dims / 2);
  for (uint32_t i = 0; i < rope.dims / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.dims);
    const float frequency = 1.0f / std::pow(rope.theta, exponent);
    switch (rope.scaling) {
      case RopeScalingKind::kNone:
        out[i] = frequency;
        break;
      case RopeScalingKind::kLinear:
        out[i] = frequency / rope.factor;
        break;
      case RopeScalingKind::kLlama3:
        out[i] = Llama3Frequency(rope, frequency);
        break;
      case RopeScalingKind::kYarn: {
        const float stretched = YarnRamp(rope).Stretched(i);
        out[i] = frequency / rope.factor * stretched + frequency * (1.0f - stretched);
        break;
      }
      case RopeScalingKind::kFrequencyFactors:
        WEFT_CHECK_EQ(rope.frequency_factors.size(), out.size());
        out[i] = frequency / rope.frequency_factors[i];
        break;
    }
  }
  return out;
}

}  // namespace weft::shard

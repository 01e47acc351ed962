#include "tests/sim/scale/step_cost.h"

#include <cmath>
#include <cstddef>
#include <iterator>

namespace weft::router::scale {
namespace {

// Batches 64 and 128 at 512 and 4,096: 30.6 and 30.1 ns a token of context.
constexpr double kContextTokenUs = 0.0303;
// Prompts of 2,048 and 8,192 tokens: what is left beside their products.
constexpr double kPairUs = 0.00078;
// Without attention; linear between and behind.
constexpr struct {
  double tokens;
  double us;
} kKnots[] = {{1, 3800},   {8, 4460},    {32, 4680},    {64, 4790},    {128, 5520},
              {256, 7820}, {512, 11000}, {2048, 45100}, {8192, 183600}};

}  // namespace

double StepUs(uint32_t tokens, double decode_context, double chunk_pairs) {
  size_t right = 1;
  while (right + 1 < std::size(kKnots) && kKnots[right].tokens < tokens) ++right;
  const auto& a = kKnots[right - 1];
  const auto& b = kKnots[right];
  const double share = (tokens - a.tokens) / (b.tokens - a.tokens);
  return a.us + share * (b.us - a.us) + kContextTokenUs * decode_context + kPairUs * chunk_pairs;
}

absl::Span<const GroupInfo::Cost> WarmupCosts() {
  static constexpr GroupInfo::Cost kCosts[] = {
      {1, 0, 128, 3804},    {64, 0, 32768, 5783},   {64, 0, 262144, 12733}, {256, 0, 131072, 11791},
      {0, 512, 512, 11100}, {0, 2048, 2048, 46700}, {0, 8192, 8192, 209800}};
  return kCosts;
}

}  // namespace weft::router::scale

#include "shard/device/cpu/expert_routes.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/limits.h"

namespace weft::shard {

using kernels::cpu::TokenScore;

ExpertRoutes::ExpertRoutes(const ExpertsSpec& experts, uint32_t rows_max)
    : count_(experts.count),
      per_token_(experts.per_token),
      renormalised_(experts.renormalised),
      choices_(size_t{rows_max} * experts.per_token),
      next_(experts.count) {
  groups_.reserve(experts.count);
  rows_.reserve(choices_.size());
}

void ExpertRoutes::Choose(const kernels::cpu::Kernels& kernels, uint32_t row, float* numbers) {
  const absl::Span<Choice> out =
      absl::MakeSpan(choices_).subspan(size_t{row} * per_token_, per_token_);
  std::array<TokenScore, kExpertsPerTokenMax> best;
  const int64_t found = kernels.top_n(numbers, count_, 0, per_token_, best.data());
  if (found < per_token_ || !kernels.all_below_infinity(numbers, count_)) {
    for (uint32_t i = 0; i < per_token_; ++i) {
      out[i] = {i, std::numeric_limits<float>::quiet_NaN()};
    }
    return;
  }
  const float largest = best[0].score;
  const float all = kernels.exp_sum(numbers, count_, largest, 1.0f, numbers);
  float chosen = 0.0f;
  for (uint32_t i = 0; i < per_token_; ++i) chosen += numbers[best[i].id];
  const float sum = renormalised_ ? chosen : all;
  for (uint32_t i = 0; i < per_token_; ++i) out[i] = {best[i].id, numbers[best[i].id] / sum};
  std::sort(out.begin(), out.end(),
            [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
}

void ExpertRoutes::Sort(uint32_t rows) {
  const absl::Span<Choice> all = absl::MakeSpan(choices_).first(size_t{rows} * per_token_);
  std::fill(next_.begin(), next_.end(), 0);
  for (const Choice& choice : all) ++next_[choice.expert];
  groups_.clear();
  uint32_t begin = 0;
  for (uint32_t expert = 0; expert < count_; ++expert) {
    const uint32_t end = begin + next_[expert];
    if (end > begin) groups_.push_back({expert, begin, end});
    next_[expert] = begin;
    begin = end;
  }
  rows_.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].place = next_[all[i].expert]++;
    rows_[all[i].place] = static_cast<uint32_t>(i / per_token_);
  }
}

}  // namespace weft::shard

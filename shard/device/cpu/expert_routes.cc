#include "shard/device/cpu/expert_routes.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/limits.h"

namespace weft::shard {
namespace {

using kernels::cpu::Kernels;
using kernels::cpu::TokenScore;

// transformers' guard against scores that are all 0.
constexpr float kSigmoidSumMin = 1e-20f;

// How good a group is: the sum of its `best` best, one or two.
float Worth(absl::Span<const float> scores, uint32_t best) {
  float first = -std::numeric_limits<float>::infinity();
  float second = first;
  for (const float score : scores) {
    second = std::max(second, std::min(first, score));
    first = std::max(first, score);
  }
  return best == 1 ? first : first + second;
}

void Sigmoid(const Kernels& kernels, uint32_t count, float* numbers) {
  for (uint32_t i = 0; i < count; ++i) numbers[i] = -numbers[i];
  kernels.exp(numbers, count, numbers);
  for (uint32_t i = 0; i < count; ++i) numbers[i] = 1.0f / (1.0f + numbers[i]);
}

}  // namespace

ExpertRoutes::ExpertRoutes(const ExpertsSpec& experts, uint32_t rows_max)
    : spec_(experts),
      count_(experts.count),
      per_token_(experts.per_token),
      choices_(size_t{rows_max} * experts.per_token),
      next_(experts.count) {
  groups_.reserve(experts.count);
  rows_.reserve(choices_.size());
}

void ExpertRoutes::HideGroups(float* scores) const {
  const uint32_t size = count_ / spec_.groups;
  std::array<float, kExpertGroupsMax> worth;
  for (uint32_t group = 0; group < spec_.groups; ++group) {
    worth[group] = Worth(absl::MakeConstSpan(scores + group * size, size), spec_.group_best);
  }
  for (uint32_t group = 0; group < spec_.groups; ++group) {
    uint32_t better = 0;
    for (uint32_t other = 0; other < spec_.groups; ++other) {
      const bool first = worth[other] == worth[group] && other < group;
      better += worth[other] > worth[group] || first ? 1 : 0;
    }
    if (better < spec_.groups_taken) continue;
    std::fill_n(scores + group * size, size, -std::numeric_limits<float>::infinity());
  }
}

void ExpertRoutes::Choose(const Kernels& kernels, uint32_t row, float* numbers,
                          const float* choice_bias) {
  const absl::Span<Choice> out =
      absl::MakeSpan(choices_).subspan(size_t{row} * per_token_, per_token_);
  const bool sigmoid = spec_.score == ExpertScore::kSigmoid;
  const bool finite = kernels.all_below_infinity(numbers, count_);
  if (sigmoid && finite) Sigmoid(kernels, count_, numbers);
  // By what experts are chosen: of shares the numbers do.
  std::array<float, kExpertsMax> scores;
  const bool chosen_otherwise = choice_bias != nullptr || spec_.groups > 1;
  if (chosen_otherwise) std::copy_n(numbers, count_, scores.begin());
  if (choice_bias != nullptr) kernels.add(scores.data(), choice_bias, count_, scores.data());
  if (spec_.groups > 1) HideGroups(scores.data());
  std::array<TokenScore, kExpertsPerTokenMax> best;
  const int64_t found =
      kernels.top_n(chosen_otherwise ? scores.data() : numbers, count_, 0, per_token_, best.data());
  if (found < per_token_ || !finite) {
    for (uint32_t i = 0; i < per_token_; ++i) {
      out[i] = {i, std::numeric_limits<float>::quiet_NaN()};
    }
    return;
  }
  // The largest of all is in the best group.
  const float all = sigmoid ? 1.0f : kernels.exp_sum(numbers, count_, best[0].score, 1.0f, numbers);
  float chosen = 0.0f;
  for (uint32_t i = 0; i < per_token_; ++i) chosen += numbers[best[i].id];
  if (sigmoid) chosen += kSigmoidSumMin;
  const float sum = spec_.renormalised ? chosen : all;
  for (uint32_t i = 0; i < per_token_; ++i) {
    out[i] = {best[i].id, numbers[best[i].id] / sum * spec_.weight_scale};
  }
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

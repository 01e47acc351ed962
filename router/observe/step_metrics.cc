#include "router/observe/step_metrics.h"

#include <algorithm>

#include "common/metrics.h"

namespace weft::router {
namespace {

// About thirty steps.
constexpr size_t kObservationsMax = 256;
constexpr double kUs = 1e-6;

}  // namespace

StepMetrics::StepMetrics(prometheus::Histogram* inter_token,
                         prometheus::Histogram* time_per_output_token)
    : inter_token_(inter_token),
      time_per_output_token_(time_per_output_token),
      gaps_(InterTokenBuckets().size() + 1, 0.0) {
  observations_.reserve(kObservationsMax);
}

void StepMetrics::Observe(prometheus::Histogram* histogram, double value) {
  absl::MutexLock lock(&mutex_);
  if (observations_.size() == kObservationsMax) FoldLocked();
  observations_.emplace_back(histogram, value);
}

void StepMetrics::InterTokens(absl::Span<const uint32_t> gaps_us) {
  const std::vector<double>& bounds = InterTokenBuckets();
  absl::MutexLock lock(&mutex_);
  for (const uint32_t gap_us : gaps_us) {
    const double gap_s = gap_us * kUs;
    gaps_sum_s_ += gap_s;
    gaps_[std::lower_bound(bounds.begin(), bounds.end(), gap_s) - bounds.begin()] += 1;
  }
}

void StepMetrics::Fold() {
  absl::MutexLock lock(&mutex_);
  FoldLocked();
}

void StepMetrics::FoldLocked() {
  for (const auto& [histogram, value] : observations_) histogram->Observe(value);
  observations_.clear();
  inter_token_->ObserveMultiple(gaps_, gaps_sum_s_);
  time_per_output_token_->ObserveMultiple(gaps_, gaps_sum_s_);
  std::fill(gaps_.begin(), gaps_.end(), 0.0);
  gaps_sum_s_ = 0;
}

}  // namespace weft::router

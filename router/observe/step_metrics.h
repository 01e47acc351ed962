// Metrics of the step path, kept back and folded into the registry in batches: a step's dozen
// histograms and gauges lie in a hundred cache lines, which a model's weights have pushed out of
// the caches since the step before. Owned by the probe. Thread-safe; whoever renders folds first,
// so a scrape misses nothing.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "prometheus/histogram.h"

namespace weft::router {

class StepMetrics {
 public:
  // Times between tokens go to both, which have InterTokenBuckets() and must outlive this, as all
  // histograms.
  StepMetrics(prometheus::Histogram* inter_token, prometheus::Histogram* time_per_output_token);

  void Observe(prometheus::Histogram* histogram, double value);
  // Times between tokens of one step's streams.
  void InterTokens(absl::Span<const uint32_t> gaps_us);

  // Puts everything kept back where it belongs.
  void Fold();

 private:
  void FoldLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  prometheus::Histogram* const inter_token_;
  prometheus::Histogram* const time_per_output_token_;
  absl::Mutex mutex_;
  std::vector<std::pair<prometheus::Histogram*, double>> observations_ ABSL_GUARDED_BY(mutex_);
  // By bucket.
  std::vector<double> gaps_ ABSL_GUARDED_BY(mutex_);
  double gaps_sum_s_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::router

// The router's metrics once more under the names that text-generation-inference and vLLM give
// theirs, so that boards, alerts and gateways made for those work (--metrics-compat). Made from
// what was read of the registry when somebody reads the metrics: nothing is counted twice, and a
// step knows nothing of it. Which name means which is in docs/METRICS.md.

#pragma once

#include <vector>

#include "prometheus/metric_family.h"

namespace weft::router {

struct MetricsCompat {
  bool tgi = false;
  bool vllm = false;
};

// Appends the families of `compat` to `families`, from whose values they are made.
void AddCompatMetrics(const MetricsCompat& compat, std::vector<prometheus::MetricFamily>* families);

}  // namespace weft::router

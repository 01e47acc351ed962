// The one metric registry of a process (prometheus-cpp) and helpers to declare families. Each
// process's probe.{h,cc} declares its metrics here once, at start, so that all are exported at zero
// from the first scrape; logic code calls the probe, never this header. What every process has, its
// log, is declared here. Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"

namespace weft {

// Labels every series of this process carries, for example model_name. Set once before any metric.
void SetMetricLabels(const std::map<std::string, std::string>& labels);

prometheus::Family<prometheus::Counter>& CounterFamily(const std::string& name,
                                                       const std::string& help);
prometheus::Family<prometheus::Gauge>& GaugeFamily(const std::string& name,
                                                   const std::string& help);
prometheus::Family<prometheus::Histogram>& HistogramFamily(const std::string& name,
                                                           const std::string& help);

// Calls `refresh` in front of every reading, on the reader's thread, for what is counted elsewhere
// and fetched when somebody asks. One call at a time; the end of the object waits for one under
// way. `refresh` moves series, and makes or reads none.
class MetricsRefresh {
 public:
  explicit MetricsRefresh(std::function<void()> refresh);
  ~MetricsRefresh();

  MetricsRefresh(const MetricsRefresh&) = delete;
  MetricsRefresh& operator=(const MetricsRefresh&) = delete;
};

// All series, as they are when it is asked, in Prometheus text format 0.0.4. `extend` may add
// families that are made from those that are there.
std::string RenderMetrics(
    const std::function<void(std::vector<prometheus::MetricFamily>*)>& extend = {});

// Bucket lists that dashboards already know (upper bounds).
const std::vector<double>& TimeToFirstTokenBuckets();        // seconds
const std::vector<double>& InterTokenBuckets();              // seconds
const std::vector<double>& RequestLatencyBuckets();          // seconds
const std::vector<double>& StepDurationBuckets();            // seconds, 0.0001 doubling
std::vector<double> TokenCountBuckets(uint32_t tokens_max);  // 1-2-5 up to tokens_max
const std::vector<double>& IterationTokensBuckets();         // 1, 8, 16 .. 16384

}  // namespace weft

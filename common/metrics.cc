#include "common/metrics.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/log.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace weft {
namespace {

std::map<std::string, std::string>& ProcessLabels() {
  static auto* labels = new std::map<std::string, std::string>();
  return *labels;
}

prometheus::Registry& MetricRegistry() {
  static auto* registry = new prometheus::Registry();
  return *registry;
}

// By the object that asked for it.
struct Refreshes {
  absl::Mutex mutex;
  std::map<const MetricsRefresh*, std::function<void()>> all ABSL_GUARDED_BY(mutex);
};

Refreshes& AllRefreshes() {
  static auto* refreshes = new Refreshes();
  return *refreshes;
}

// The registry, and what is counted elsewhere and fetched when somebody reads.
class ProcessMetrics {
 public:
  std::vector<prometheus::MetricFamily> Collect() const {
    FollowLog();
    return MetricRegistry().Collect();
  }

 private:
  void FollowLog() const {
    absl::MutexLock lock(&mutex_);
    if (lines_dropped_ == nullptr) {
      lines_dropped_ = &CounterFamily("weft_log_lines_dropped_total",
                                      "Lines of the log that were dropped because stderr did not "
                                      "take them")
                            .Add({});
    }
    const auto dropped = static_cast<double>(LogLinesDropped());
    const double counted = lines_dropped_->Value();
    if (dropped > counted) lines_dropped_->Increment(dropped - counted);
  }

  mutable absl::Mutex mutex_;
  // Made by the first who reads: the process's labels are set by then.
  mutable prometheus::Counter* lines_dropped_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

void SetMetricLabels(const std::map<std::string, std::string>& labels) { ProcessLabels() = labels; }

prometheus::Family<prometheus::Counter>& CounterFamily(const std::string& name,
                                                       const std::string& help) {
  return prometheus::BuildCounter()
      .Name(name)
      .Help(help)
      .Labels(ProcessLabels())
      .Register(MetricRegistry());
}

prometheus::Family<prometheus::Gauge>& GaugeFamily(const std::string& name,
                                                   const std::string& help) {
  return prometheus::BuildGauge()
      .Name(name)
      .Help(help)
      .Labels(ProcessLabels())
      .Register(MetricRegistry());
}

prometheus::Family<prometheus::Histogram>& HistogramFamily(const std::string& name,
                                                           const std::string& help) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Labels(ProcessLabels())
      .Register(MetricRegistry());
}

MetricsRefresh::MetricsRefresh(std::function<void()> refresh) {
  Refreshes& refreshes = AllRefreshes();
  absl::MutexLock lock(&refreshes.mutex);
  refreshes.all.emplace(this, std::move(refresh));
}

MetricsRefresh::~MetricsRefresh() {
  Refreshes& refreshes = AllRefreshes();
  absl::MutexLock lock(&refreshes.mutex);
  refreshes.all.erase(this);
}

std::string RenderMetrics(
    const std::function<void(std::vector<prometheus::MetricFamily>*)>& extend) {
  static const auto* metrics = new ProcessMetrics();
  {
    Refreshes& refreshes = AllRefreshes();
    absl::MutexLock lock(&refreshes.mutex);
    for (const auto& [owner, refresh] : refreshes.all) refresh();
  }
  std::vector<prometheus::MetricFamily> families = metrics->Collect();
  if (extend) extend(&families);
  return prometheus::TextSerializer().Serialize(families);
}

const std::vector<double>& TimeToFirstTokenBuckets() {
  static const auto* buckets = new std::vector<double>{
      0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
      1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
  return *buckets;
}

const std::vector<double>& InterTokenBuckets() {
  static const auto* buckets = new std::vector<double>{
      0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1,  0.15,
      0.2,    0.3,   0.4,   0.5,   0.75,  1.0,   2.5,    5.0,  7.5,   10.0, 20.0,  40.0, 80.0};
  return *buckets;
}

const std::vector<double>& RequestLatencyBuckets() {
  static const auto* buckets =
      new std::vector<double>{0.001, 0.005, 0.01,  0.025, 0.05,  0.1,   0.2,    0.3,   0.5,  0.8,
                              1.0,   1.5,   2.0,   2.5,   5.0,   10.0,  15.0,   20.0,  30.0, 40.0,
                              50.0,  60.0,  120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
  return *buckets;
}

const std::vector<double>& StepDurationBuckets() {
  static const auto* buckets = [] {
    auto* out = new std::vector<double>();
    for (double bound = 0.0001; bound < 10.0; bound *= 2) out->push_back(bound);
    return out;
  }();
  return *buckets;
}

std::vector<double> TokenCountBuckets(uint32_t tokens_max) {
  std::vector<double> out;
  for (double decade = 1; decade <= tokens_max; decade *= 10) {
    for (double factor : {1.0, 2.0, 5.0}) {
      if (decade * factor <= tokens_max) out.push_back(decade * factor);
    }
  }
  return out;
}

const std::vector<double>& IterationTokensBuckets() {
  static const auto* buckets =
      new std::vector<double>{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  return *buckets;
}

}  // namespace weft

#include "shard/control/probe.h"

#include <array>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/version.h"

namespace weft::shard {
namespace {

constexpr double kSecondsPerUs = 1e-6;
constexpr std::array<const char*, 3> kSteps = {"Prefill", "Decode", "FilterBatch"};
constexpr std::array<const char*, 9> kCalls = {"Info",       "Rendezvous",  "JoinGroup",
                                               "LeaveGroup", "Warmup",      "Prefill",
                                               "Decode",     "FilterBatch", "MaskRows"};

template <size_t N>
size_t IndexOf(const std::array<const char*, N>& names, absl::string_view name) {
  size_t i = 0;
  while (i < N && name != names[i]) ++i;
  WEFT_CHECK_LT(i, N);
  return i;
}

}  // namespace

struct ShardProbe::Series {
  struct Step {
    prometheus::Histogram* duration;
    prometheus::Counter* count;
    prometheus::Counter* queue;
    prometheus::Counter* host;
    prometheus::Counter* device;
    prometheus::Counter* comm;
  };
  std::array<Step, kSteps.size()> steps;
  std::array<prometheus::Histogram*, kCalls.size()> calls;
  prometheus::Counter* helper_wait;
  prometheus::Counter* helper_stalls;
  prometheus::Counter* helper_backoffs;
  prometheus::Counter* invalid_rows;
  prometheus::Counter* kv_saturated;
  prometheus::Counter* watchdog_stalls;
  prometheus::Gauge* last_step;
  prometheus::Gauge* load_seconds;
  prometheus::Gauge* load_bytes;
  prometheus::Gauge* load_ratio;
  prometheus::Gauge* weights_bytes;
  prometheus::Gauge* kv_bytes;
  prometheus::Gauge* workspace_bytes;
};

// The series of experts, by layer and expert as ExpertLoad has them.
class ShardProbe::Experts {
 public:
  explicit Experts(std::shared_ptr<ExpertLoad> load) : load_(std::move(load)) {
    auto& rows = CounterFamily("weft_shard_expert_rows_total", "Rows that took an expert");
    for (const uint32_t layer : load_->layers()) {
      for (uint32_t expert = 0; expert < load_->experts(); ++expert) {
        counters_.push_back(
            &rows.Add({{"layer", absl::StrCat(layer)}, {"expert", absl::StrCat(expert)}}));
      }
    }
    shown_.resize(counters_.size());
  }

 private:
  void Refresh() {
    const absl::StatusOr<std::vector<uint64_t>> rows = load_->Read();
    if (!rows.ok()) {
      // The series stay as they are.
      WEFT_LOG_WARN("rows of experts: {}", std::string(rows.status().message()));
      return;
    }
    for (size_t i = 0; i < shown_.size(); ++i) {
      counters_[i]->Increment(static_cast<double>((*rows)[i] - shown_[i]));
      shown_[i] = (*rows)[i];
    }
  }

  const std::shared_ptr<ExpertLoad> load_;
  std::vector<prometheus::Counter*> counters_;
  std::vector<uint64_t> shown_;
  // Last: it calls what is above.
  const MetricsRefresh refresh_{[this] { Refresh(); }};
};

ShardProbe::ShardProbe(const std::string& model, Rank rank) : series_(std::make_unique<Series>()) {
  SetMetricLabels({{"model_name", model}, {"rank", absl::StrCat(rank)}});
  auto& durations = HistogramFamily("weft_shard_step_duration_seconds",
                                    "Device time of a step, first launch to last result");
  auto& counts = CounterFamily("weft_shard_steps_total", "Steps that ran");
  auto& phases = CounterFamily("weft_shard_step_phase_seconds_total",
                               "Where the time of steps went; comm is part of device");
  for (size_t i = 0; i < kSteps.size(); ++i) {
    const std::string method = kSteps[i];
    const auto phase = [&](const char* name) -> prometheus::Counter* {
      return &phases.Add({{"method", method}, {"phase", name}});
    };
    series_->steps[i] = {&durations.Add({{"method", method}}, StepDurationBuckets()),
                         &counts.Add({{"method", method}}),
                         phase("queue"),
                         phase("host"),
                         phase("device"),
                         phase("comm")};
  }
  auto& calls =
      HistogramFamily("weft_shard_rpc_duration_seconds", "From arrival of a call to its answer");
  for (size_t i = 0; i < kCalls.size(); ++i) {
    series_->calls[i] = &calls.Add({{"method", kCalls[i]}}, StepDurationBuckets());
  }
  const auto gauge = [](const char* name, const char* help) {
    return &GaugeFamily(name, help).Add({});
  };
  const auto counter = [](const char* name, const char* help) {
    return &CounterFamily(name, help).Add({});
  };
  series_->helper_wait =
      counter("weft_shard_helper_wait_seconds_total", "Waited for compute helpers");
  series_->helper_stalls = counter("weft_shard_helper_stalls_total",
                                   "Waits for a compute helper that had lost its core");
  series_->helper_backoffs =
      counter("weft_shard_helper_backoffs_total", "Times compute helpers were rested for a while");
  series_->invalid_rows =
      counter("weft_shard_invalid_rows_total",
              "Sampled rows whose logits held NaN or +infinity or nothing finite");
  series_->kv_saturated =
      counter("weft_shard_kv_saturated_total",
              "Keys and values that the KV cache holds as the largest number of float16");
  series_->watchdog_stalls = counter("weft_watchdog_stalls_total",
                                     "Times that a thread with work was found not to come round");
  series_->last_step =
      gauge("weft_shard_last_step_timestamp_seconds", "Unix time of the last step");
  series_->load_seconds = gauge("weft_model_load_seconds", "Time spent loading weights");
  series_->load_bytes = gauge("weft_model_load_bytes", "Bytes of weights read");
  series_->load_ratio = gauge("weft_model_load_ratio", "Part of the weights read, 0 .. 1");
  auto& memory = GaugeFamily("weft_shard_memory_bytes", "Planned memory of this rank");
  series_->weights_bytes = &memory.Add({{"kind", "weights"}});
  series_->kv_bytes = &memory.Add({{"kind", "kv"}});
  series_->workspace_bytes = &memory.Add({{"kind", "workspace"}});
  GaugeFamily("weft_build_info", "What is running; always 1")
      .Add({{"version", Version()}, {"revision", Revision()}})
      .Set(1);
}

ShardProbe::~ShardProbe() = default;

void ShardProbe::StepDone(absl::string_view method, const v1::StepTimings& timings,
                          const StepResult& result) {
  const Series::Step& step = series_->steps[IndexOf(kSteps, method)];
  step.duration->Observe(timings.device_us() * kSecondsPerUs);
  step.count->Increment();
  step.queue->Increment(timings.queue_us() * kSecondsPerUs);
  step.host->Increment(timings.host_us() * kSecondsPerUs);
  step.device->Increment(timings.device_us() * kSecondsPerUs);
  step.comm->Increment(timings.comm_us() * kSecondsPerUs);
  series_->helper_wait->Increment(static_cast<double>(result.helpers.wait_us) * kSecondsPerUs);
  series_->helper_stalls->Increment(static_cast<double>(result.helpers.stalls));
  series_->helper_backoffs->Increment(static_cast<double>(result.helpers.backoffs));
  series_->invalid_rows->Increment(static_cast<double>(result.invalid_rows.size()));
  series_->kv_saturated->Increment(static_cast<double>(result.kv_saturated));
  series_->last_step->Set(static_cast<double>(std::time(nullptr)));
}

void ShardProbe::RpcDone(absl::string_view method, absl::Duration duration) {
  series_->calls[IndexOf(kCalls, method)]->Observe(absl::ToDoubleSeconds(duration));
}

void ShardProbe::ThreadStuck() { series_->watchdog_stalls->Increment(); }

void ShardProbe::Loading(uint64_t bytes_done, uint64_t bytes_total, absl::Duration elapsed) {
  series_->load_seconds->Set(absl::ToDoubleSeconds(elapsed));
  series_->load_bytes->Set(static_cast<double>(bytes_done));
  series_->load_ratio->Set(
      bytes_total == 0 ? 0 : static_cast<double>(bytes_done) / static_cast<double>(bytes_total));
}

void ShardProbe::ShowExperts(std::shared_ptr<ExpertLoad> load) {
  WEFT_CHECK(experts_ == nullptr);
  experts_ = std::make_unique<Experts>(std::move(load));
}

void ShardProbe::Loaded(const v1::MemoryPlan& memory) {
  series_->weights_bytes->Set(static_cast<double>(memory.weights_bytes()));
  series_->kv_bytes->Set(static_cast<double>(memory.kv_bytes()));
  series_->workspace_bytes->Set(static_cast<double>(memory.workspace_bytes()));
}

}  // namespace weft::shard

#include "router/observe/probe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/metrics.h"
#include "common/process_stat.h"
#include "common/thread.h"
#include "common/version.h"
#include "router/observe/step_metrics.h"

namespace weft::router {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

constexpr double kUs = 1e-6;

// Label values, in the order of the enums.
constexpr const char* kRejects[] = {"queue_requests", "queue_tokens", "draining", "too_long",
                                    "not_ready",      "text_bytes",   "tenant",   "identity"};
constexpr const char* kFailures[] = {"validation", "overloaded", "unavailable",
                                     "deadline",   "shard_lost", "internal"};
constexpr const char* kPhases[] = {"text", "queue", "prefill", "decode"};
constexpr CancelReason kCancels[] = {CancelReason::kClientGone, CancelReason::kAdmin,
                                     CancelReason::kDeadline, CancelReason::kQueueTimeout,
                                     CancelReason::kSlowReader};
constexpr const char* kRestarts[] = {"exit", "oom", "nccl", "timeout"};
constexpr const char* kGroupStates[] = {"connecting", "loading", "joining",
                                        "warming",    "serving", "recovering"};
constexpr const char* kServerStates[] = {"starting", "loading",    "warming",
                                         "ready",    "recovering", "draining"};
constexpr const char* kCalls[] = {"Info",   "Rendezvous", "JoinGroup", "LeaveGroup",
                                  "Warmup", "Prefill",    "Decode",    "FilterBatch"};
constexpr const char* kDoors[] = {"tgi", "openai", "grpc"};
constexpr const char* kSteps[] = {"prefill", "decode", "filter"};
constexpr const char* kGrpcMethods[] = {"Generate", "Tokenize", "Detokenize", "Cancel", "GetModel"};

Counter& OneCounter(const std::string& name, const std::string& help) {
  return CounterFamily(name, help).Add({});
}
Gauge& OneGauge(const std::string& name, const std::string& help) {
  return GaugeFamily(name, help).Add({});
}
Histogram& OneHistogram(const std::string& name, const std::string& help,
                        const std::vector<double>& buckets) {
  return HistogramFamily(name, help).Add({}, buckets);
}

template <size_t N>
std::array<Counter*, N> Counters(Family<Counter>& family, const std::string& label,
                                 const char* const (&values)[N]) {
  std::array<Counter*, N> out;
  for (size_t i = 0; i < N; ++i) out[i] = &family.Add({{label, values[i]}});
  return out;
}

template <size_t N>
std::array<Gauge*, N> Gauges(Family<Gauge>& family, const std::string& label,
                             const char* const (&values)[N]) {
  std::array<Gauge*, N> out;
  for (size_t i = 0; i < N; ++i) out[i] = &family.Add({{label, values[i]}});
  return out;
}

template <size_t N>
std::array<Histogram*, N> Histograms(Family<Histogram>& family, const std::string& label,
                                     const char* const (&values)[N],
                                     const std::vector<double>& buckets) {
  std::array<Histogram*, N> out;
  for (size_t i = 0; i < N; ++i) out[i] = &family.Add({{label, values[i]}}, buckets);
  return out;
}

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What dashboards divide by: a counter that follows a total owned by somebody else.
void Follow(Counter& counter, uint64_t total, uint64_t* seen) {
  if (total > *seen) counter.Increment(static_cast<double>(total - *seen));
  *seen = total;
}

}  // namespace

struct Probe::Metrics {
  explicit Metrics(uint32_t context_tokens_max)
      : count_buckets(TokenCountBuckets(context_tokens_max)) {
    GaugeFamily("weft_build_info", "Version and source revision; always 1")
        .Add({{"version", Version()}, {"revision", Revision()}})
        .Set(1);
    process_start.Set(UnixSeconds());
    for (size_t i = 0; i < cancelled.size(); ++i) {
      for (size_t j = 0; j < cancelled[i].size(); ++j) {
        cancelled[i][j] = &cancelled_family.Add(
            {{"by", std::string(CancelReasonName(kCancels[i]))}, {"phase", kPhases[j]}});
      }
    }
    for (const char* method : kGrpcMethods) {
      grpc_handling.Add(GrpcLabels(method), StepDurationBuckets());
      grpc_handled.Add(GrpcLabels(method, "OK"));
    }
    http_requests.Add({{"route", "other"}, {"code", "404"}});
    for (GroupState state : {GroupState::kJoining, GroupState::kWarming, GroupState::kServing}) {
      group_losses[static_cast<size_t>(state)] =
          &group_loss_family.Add({{"state", GroupStateName(state)}});
    }
    server_states[0]->Set(1);
    group_states[0]->Set(1);
  }

  static std::map<std::string, std::string> GrpcLabels(absl::string_view method,
                                                       absl::string_view code = "") {
    std::map<std::string, std::string> labels = {{"grpc_service", "weft.v1.TextGeneration"},
                                                 {"grpc_method", std::string(method)}};
    if (!code.empty()) labels["grpc_code"] = std::string(code);
    return labels;
  }

  const std::vector<double> count_buckets;

  // Requests.
  Gauge& running = OneGauge("weft_num_requests_running", "Requests that hold KV blocks");
  Gauge& waiting = OneGauge("weft_num_requests_waiting", "Requests admitted and not running");
  Family<Gauge>& waiting_family = GaugeFamily(
      "weft_num_requests_waiting_by_reason",
      "Requests admitted and not running: for a slot or KV blocks, or for a shard group");
  Gauge& waiting_capacity = waiting_family.Add({{"reason", "capacity"}});
  Gauge& waiting_deferred = waiting_family.Add({{"reason", "deferred"}});
  Counter& prompt_tokens = OneCounter("weft_prompt_tokens_total", "Prompt tokens accepted");
  Counter& prompt_tokens_cached =
      OneCounter("weft_prompt_tokens_cached_total", "Prompt tokens found in the prefix cache");
  Counter& generation_tokens = OneCounter("weft_generation_tokens_total", "Tokens generated");
  Family<Counter>& success_family =
      CounterFamily("weft_request_success_total", "Requests ended without an error, by reason");
  Counter& success_stop = success_family.Add({{"finished_reason", "stop"}});
  Counter& success_length = success_family.Add({{"finished_reason", "length"}});
  Counter& success_abort = success_family.Add({{"finished_reason", "abort"}});
  std::array<Counter*, 6> failures =
      Counters(CounterFamily("weft_request_failure_total", "Requests failed, by reason"), "reason",
               kFailures);
  std::array<Counter*, std::size(kRejects)> rejects =
      Counters(CounterFamily("weft_admission_rejections_total",
                             "Requests turned away before they ran, by reason"),
               "reason", kRejects);
  Family<Counter>& cancelled_family = CounterFamily(
      "weft_requests_cancelled_total", "Requests cancelled, by whom and in which phase");
  std::array<std::array<Counter*, 4>, std::size(kCancels)> cancelled;
  std::array<Counter*, 3> ignored = Counters(
      CounterFamily("weft_request_ignored_fields_total", "Unknown request fields ignored, by door"),
      "door", kDoors);

  Histogram& first_token = OneHistogram("weft_time_to_first_token_seconds",
                                        "Arrival to first token", TimeToFirstTokenBuckets());
  Histogram& inter_token = OneHistogram("weft_inter_token_latency_seconds",
                                        "Between two tokens of a stream", InterTokenBuckets());
  Histogram& time_per_output_token = OneHistogram(
      "weft_time_per_output_token_seconds",
      "Between two tokens of a stream; an older name of weft_inter_token_latency_seconds",
      InterTokenBuckets());
  StepMetrics step_metrics{&inter_token, &time_per_output_token};
  Histogram& per_output_token =
      OneHistogram("weft_request_time_per_output_token_seconds",
                   "A request's decode time by token after the first", InterTokenBuckets());
  Histogram& e2e =
      OneHistogram("weft_e2e_request_latency_seconds", "Arrival to end", RequestLatencyBuckets());
  Histogram& validation_time = OneHistogram("weft_request_validation_time_seconds",
                                            "Arrival to admission", RequestLatencyBuckets());
  Histogram& queue_time = OneHistogram("weft_request_queue_time_seconds",
                                       "Admission to the first step", RequestLatencyBuckets());
  Histogram& prefill_time = OneHistogram("weft_request_prefill_time_seconds",
                                         "First step to first token", RequestLatencyBuckets());
  Histogram& decode_time = OneHistogram("weft_request_decode_time_seconds",
                                        "First token to last token", RequestLatencyBuckets());
  Histogram& inference_time = OneHistogram("weft_request_inference_time_seconds",
                                           "First step to last token", RequestLatencyBuckets());
  Histogram& request_prompt_tokens =
      OneHistogram("weft_request_prompt_tokens", "Prompt tokens of a request", count_buckets);
  Histogram& request_generation_tokens = OneHistogram(
      "weft_request_generation_tokens", "Tokens generated for a request", count_buckets);
  // vLLM's answers may have several choices, of which it counts the longest; ours have one.
  Histogram& request_max_generation_tokens =
      OneHistogram("weft_request_max_num_generation_tokens",
                   "Tokens generated for a request's longest choice", count_buckets);
  Histogram& request_max_tokens = OneHistogram("weft_request_params_max_tokens",
                                               "Limit on new tokens of a request", count_buckets);

  // KV and prefix cache.
  Gauge& kv_usage = OneGauge("weft_kv_cache_usage_perc", "Share of KV blocks in use, 0 .. 1");
  Family<Gauge>& kv_blocks = GaugeFamily("weft_kv_blocks", "KV blocks, by state");
  Gauge& kv_used = kv_blocks.Add({{"state", "used"}});
  Gauge& kv_cached = kv_blocks.Add({{"state", "cached"}});
  Gauge& kv_free = kv_blocks.Add({{"state", "free"}});
  Family<Gauge>& cache_config =
      GaugeFamily("weft_cache_config_info", "Shape of the KV cache; always 1");
  Gauge* cache_config_now = nullptr;
  Counter& prefix_queries =
      OneCounter("weft_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  Counter& prefix_hits =
      OneCounter("weft_prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  Counter& evicted =
      OneCounter("weft_prefix_cache_evicted_blocks_total", "Cached blocks taken for other use");
  Counter& preemptions =
      OneCounter("weft_num_preemptions_total", "Sequences that gave their KV blocks back");
  // What the scheduler last said, and what of it the counters have.
  absl::Mutex now_mutex;
  SchedulerStats now ABSL_GUARDED_BY(now_mutex);
  bool now_serving ABSL_GUARDED_BY(now_mutex) = false;
  SchedulerStats seen;

  // Steps.
  Histogram& iteration_tokens =
      OneHistogram("weft_iteration_tokens_total", "Tokens of a step", IterationTokensBuckets());
  std::array<Counter*, 3> steps =
      Counters(CounterFamily("weft_steps_total", "Steps run, by kind"), "kind", kSteps);
  std::array<Histogram*, 3> batch_size = Histograms(
      HistogramFamily("weft_batch_size", "Sequences in a step"), "phase", kSteps, count_buckets);
  std::array<Histogram*, 3> forward =
      Histograms(HistogramFamily("weft_batch_forward_duration_seconds", "Device time of a step"),
                 "phase", kSteps, StepDurationBuckets());
  std::array<Histogram*, 3> host =
      Histograms(HistogramFamily("weft_batch_host_duration_seconds", "Host time of a step"),
                 "phase", kSteps, StepDurationBuckets());
  std::array<Histogram*, 3> queue = Histograms(
      HistogramFamily("weft_batch_queue_duration_seconds", "Wait of a step for the one before"),
      "phase", kSteps, StepDurationBuckets());
  std::array<Histogram*, 3> wire = Histograms(
      HistogramFamily("weft_batch_wire_duration_seconds", "Call time of a step less the shard's"),
      "phase", kSteps, StepDurationBuckets());
  Gauge& last_progress =
      OneGauge("weft_engine_last_progress_timestamp_seconds", "Unix time of the last step's end");

  // Shards.
  std::array<Gauge*, 6> server_states = Gauges(
      GaugeFamily("weft_server_state", "1 for the state the server is in"), "state", kServerStates);
  std::array<Gauge*, 6> group_states =
      Gauges(GaugeFamily("weft_group_state", "1 for the state the shard group is in"), "state",
             kGroupStates);
  Gauge& epoch = OneGauge("weft_group_epoch", "Epoch of the shard group");
  Family<Counter>& group_loss_family =
      CounterFamily("weft_group_losses_total",
                    "Epochs and attempts to form one that were lost, by the group's state");
  // By state; those that a group can be lost in, the others are null.
  std::array<Counter*, 6> group_losses = {};
  std::array<Counter*, 3> steps_lost =
      Counters(CounterFamily("weft_steps_lost_total",
                             "Steps sent and not answered when their group was lost, by kind"),
               "kind", kSteps);
  Histogram& recovery =
      OneHistogram("weft_group_recovery_duration_seconds",
                   "Loss of a group to the first step of the next", RequestLatencyBuckets());
  Family<Gauge>& shard_up = GaugeFamily("weft_shard_up", "1 while the shard answers");
  Family<Gauge>& load_seconds = GaugeFamily("weft_model_load_seconds", "Time loading took so far");
  Family<Gauge>& load_bytes = GaugeFamily("weft_model_load_bytes", "Weight bytes loaded");
  Family<Gauge>& load_ratio = GaugeFamily("weft_model_load_ratio", "Share of weights loaded");
  Family<Gauge>& last_step =
      GaugeFamily("weft_shard_last_step_timestamp_seconds", "Unix time of the shard's last step");
  Family<Histogram>& shard_step =
      HistogramFamily("weft_shard_step_duration_seconds", "Device time of a shard's step");
  struct Shard {
    Gauge *up, *load_seconds, *load_bytes, *load_ratio, *last_step;
    Histogram* step;
  };
  absl::Mutex shards_mutex;
  std::vector<Shard> shards;
  std::array<Histogram*, 8> rpc =
      Histograms(HistogramFamily("weft_shard_rpc_duration_seconds", "Time of a call to a shard"),
                 "method", kCalls, StepDurationBuckets());
  std::array<Counter*, 4> restarts =
      Counters(CounterFamily("weft_shard_restarts_total", "Shards restarted, by reason"), "reason",
               kRestarts);

  // Doors.
  Gauge& connections = OneGauge("weft_http_connections", "Open HTTP connections");
  Family<Counter>& http_requests =
      CounterFamily("weft_http_requests_total", "HTTP requests answered, by route and code");
  Family<Counter>& grpc_handled =
      CounterFamily("grpc_server_handled_total", "gRPC calls ended, by method and code");
  Family<Histogram>& grpc_handling =
      HistogramFamily("grpc_server_handling_seconds", "gRPC call time by method");

  // Process.
  Gauge& process_start =
      OneGauge("process_start_time_seconds", "Unix time of the start of this process");
  Counter& process_cpu =
      OneCounter("process_cpu_seconds_total", "User and system CPU time of this process");
  Gauge& process_memory =
      OneGauge("process_resident_memory_bytes", "Resident memory of this process");
  Gauge& process_fds = OneGauge("process_open_fds", "Open file descriptors of this process");
  absl::Mutex render_mutex;

  Shard* FindShard(Rank rank) {
    absl::MutexLock lock(&shards_mutex);
    return rank < shards.size() ? &shards[rank] : nullptr;
  }
};

Probe::Probe(uint32_t context_tokens_max)
    : metrics_(std::make_unique<Metrics>(context_tokens_max)) {}
Probe::~Probe() = default;

// -- Requests ------------------------------------------------------------------------------------

void Probe::RequestAccepted(uint32_t prompt_tokens, uint32_t cached_tokens, uint32_t max_tokens,
                            int64_t validation_us) {
  metrics_->prompt_tokens.Increment(prompt_tokens);
  metrics_->prompt_tokens_cached.Increment(cached_tokens);
  metrics_->request_max_tokens.Observe(max_tokens);
  metrics_->validation_time.Observe(static_cast<double>(validation_us) * kUs);
}

void Probe::Rejected(RejectReason reason) {
  metrics_->rejects[static_cast<size_t>(reason)]->Increment();
}

void Probe::LeftQueue(int64_t queue_us) {
  metrics_->queue_time.Observe(static_cast<double>(queue_us) * kUs);
}

void Probe::FirstToken(int64_t since_arrival_us) {
  metrics_->first_token.Observe(static_cast<double>(since_arrival_us) * kUs);
}

void Probe::InterTokens(absl::Span<const uint32_t> gaps_us) {
  metrics_->step_metrics.InterTokens(gaps_us);
}

void Probe::GeneratedTokens(uint32_t count) { metrics_->generation_tokens.Increment(count); }

void Probe::Finished(const FinishedSample& sample) {
  const bool length = sample.reason == FinishReason::kLength;
  (length ? metrics_->success_length : metrics_->success_stop).Increment();
  metrics_->request_prompt_tokens.Observe(sample.prompt_tokens);
  metrics_->request_generation_tokens.Observe(sample.output_tokens);
  metrics_->request_max_generation_tokens.Observe(sample.output_tokens);
  metrics_->prefill_time.Observe(static_cast<double>(sample.prefill_us) * kUs);
  metrics_->decode_time.Observe(static_cast<double>(sample.decode_us) * kUs);
  metrics_->inference_time.Observe(static_cast<double>(sample.prefill_us + sample.decode_us) * kUs);
  metrics_->e2e.Observe(static_cast<double>(sample.total_us) * kUs);
  if (sample.output_tokens > 1) {
    metrics_->per_output_token.Observe(static_cast<double>(sample.decode_us) * kUs /
                                       (sample.output_tokens - 1));
  }
}

void Probe::Failed(FailureReason reason) {
  metrics_->failures[static_cast<size_t>(reason)]->Increment();
}

void Probe::Cancelled(CancelReason by, CancelPhase phase) {
  const auto* const found = std::find(std::begin(kCancels), std::end(kCancels), by);
  WEFT_CHECK(found != std::end(kCancels));
  metrics_->cancelled[found - std::begin(kCancels)][static_cast<size_t>(phase)]->Increment();
  // Who waits in vain is told of an error; the others did not want their answer any more.
  if (by == CancelReason::kDeadline) {
    Failed(FailureReason::kDeadline);
  } else if (by == CancelReason::kQueueTimeout) {
    Failed(FailureReason::kUnavailable);
  } else {
    metrics_->success_abort.Increment();
  }
}

void Probe::IgnoredFields(Door door, uint32_t count) {
  if (count > 0) metrics_->ignored[static_cast<size_t>(door)]->Increment(count);
}

// -- Scheduler and steps -------------------------------------------------------------------------

void Probe::Scheduler(const SchedulerStats& stats, bool serving) {
  absl::MutexLock lock(&metrics_->now_mutex);
  metrics_->now = stats;
  metrics_->now_serving = serving;
}

void Probe::RenderScheduler() {
  Metrics& m = *metrics_;
  absl::MutexLock lock(&m.now_mutex);
  const SchedulerStats& stats = m.now;
  const bool serving = m.now_serving;
  m.running.Set(stats.running);
  m.waiting.Set(stats.waiting);
  m.waiting_capacity.Set(serving ? stats.waiting : 0);
  m.waiting_deferred.Set(serving ? 0 : stats.waiting);
  m.kv_used.Set(stats.blocks_used);
  m.kv_cached.Set(stats.blocks_cached);
  m.kv_free.Set(static_cast<double>(stats.blocks_total) - stats.blocks_used - stats.blocks_cached);
  m.kv_usage.Set(stats.blocks_total == 0 ? 0.0
                                         : static_cast<double>(stats.blocks_used) /
                                               static_cast<double>(stats.blocks_total));
  Follow(m.preemptions, stats.preemptions, &m.seen.preemptions);
  Follow(m.prefix_queries, stats.prefix_queried_tokens, &m.seen.prefix_queried_tokens);
  Follow(m.prefix_hits, stats.prefix_hit_tokens, &m.seen.prefix_hit_tokens);
  Follow(m.evicted, stats.evicted_blocks, &m.seen.evicted_blocks);
}

void Probe::CacheConfig(uint32_t block_tokens, uint32_t blocks, bool prefix_cache) {
  Metrics& m = *metrics_;
  if (m.cache_config_now != nullptr) m.cache_config_now->Set(0);
  m.cache_config_now =
      &m.cache_config.Add({{"block_size", absl::StrCat(block_tokens)},
                           {"num_blocks", absl::StrCat(blocks)},
                           {"enable_prefix_caching", prefix_cache ? "true" : "false"}});
  m.cache_config_now->Set(1);
}

void Probe::StepDone(const StepSample& sample) {
  Metrics& m = *metrics_;
  const auto kind = static_cast<size_t>(sample.kind);
  m.steps[kind]->Increment();
  StepMetrics& later = m.step_metrics;
  later.Observe(&m.iteration_tokens, sample.tokens);
  later.Observe(m.batch_size[kind], sample.rows);
  later.Observe(m.forward[kind], static_cast<double>(sample.device_us) * kUs);
  later.Observe(m.host[kind], static_cast<double>(sample.host_us) * kUs);
  later.Observe(m.queue[kind], static_cast<double>(sample.queue_us) * kUs);
  later.Observe(m.wire[kind], static_cast<double>(sample.wire_us) * kUs);
  m.last_progress.Set(UnixSeconds());
}

// -- Shards --------------------------------------------------------------------------------------

void Probe::SetWorld(uint32_t world) {
  Metrics& m = *metrics_;
  absl::MutexLock lock(&m.shards_mutex);
  m.shards.reserve(kWorldMax);  // pointers into it stay good
  while (m.shards.size() < world) {
    const std::map<std::string, std::string> rank = {{"rank", absl::StrCat(m.shards.size())}};
    m.shards.push_back({&m.shard_up.Add(rank), &m.load_seconds.Add(rank), &m.load_bytes.Add(rank),
                        &m.load_ratio.Add(rank), &m.last_step.Add(rank),
                        &m.shard_step.Add(rank, StepDurationBuckets())});
  }
}

void Probe::SetGroupState(GroupState state, Epoch epoch) {
  for (size_t i = 0; i < metrics_->group_states.size(); ++i) {
    metrics_->group_states[i]->Set(i == static_cast<size_t>(state) ? 1 : 0);
  }
  metrics_->epoch.Set(static_cast<double>(epoch));
}

void Probe::GroupLost(GroupState state) {
  Counter* counter = metrics_->group_losses[static_cast<size_t>(state)];
  WEFT_CHECK(counter != nullptr);
  counter->Increment();
}

void Probe::StepLost(StepKind kind) {
  metrics_->steps_lost[static_cast<size_t>(kind)]->Increment();
}

void Probe::Recovered(int64_t recovery_us) {
  metrics_->recovery.Observe(static_cast<double>(recovery_us) * kUs);
}

void Probe::ShardUp(Rank rank, bool up) {
  if (Metrics::Shard* shard = metrics_->FindShard(rank)) shard->up->Set(up ? 1 : 0);
}

void Probe::ShardLoad(Rank rank, uint64_t bytes_done, uint64_t bytes_total, double seconds) {
  Metrics::Shard* shard = metrics_->FindShard(rank);
  if (shard == nullptr) return;
  shard->load_bytes->Set(static_cast<double>(bytes_done));
  shard->load_seconds->Set(seconds);
  shard->load_ratio->Set(
      bytes_total == 0 ? 0.0 : static_cast<double>(bytes_done) / static_cast<double>(bytes_total));
}

void Probe::ShardRestarted(RestartReason reason) {
  metrics_->restarts[static_cast<size_t>(reason)]->Increment();
}

void Probe::ShardStep(Rank rank, int64_t device_us) {
  Metrics::Shard* shard = metrics_->FindShard(rank);
  if (shard == nullptr) return;
  metrics_->step_metrics.Observe(shard->step, static_cast<double>(device_us) * kUs);
  shard->last_step->Set(UnixSeconds());
}

void Probe::ShardRpc(ShardCall call, int64_t call_us) {
  metrics_->step_metrics.Observe(metrics_->rpc[static_cast<size_t>(call)],
                                 static_cast<double>(call_us) * kUs);
}

void Probe::SetServerState(ServerState state) {
  for (size_t i = 0; i < metrics_->server_states.size(); ++i) {
    metrics_->server_states[i]->Set(i == static_cast<size_t>(state) ? 1 : 0);
  }
}

// -- Doors ---------------------------------------------------------------------------------------

void Probe::HttpConnections(int64_t delta) {
  metrics_->connections.Increment(static_cast<double>(delta));
}

void Probe::HttpRoute(absl::string_view route) {
  metrics_->http_requests.Add({{"route", std::string(route)}, {"code", "200"}});
}

void Probe::HttpHandled(absl::string_view route, int code) {
  metrics_->http_requests.Add({{"route", std::string(route)}, {"code", absl::StrCat(code)}})
      .Increment();
}

void Probe::GrpcHandled(absl::string_view method, absl::string_view code, int64_t handling_us) {
  metrics_->grpc_handled.Add(Metrics::GrpcLabels(method, code)).Increment();
  metrics_->grpc_handling.Add(Metrics::GrpcLabels(method), StepDurationBuckets())
      .Observe(static_cast<double>(handling_us) * kUs);
}

std::string Probe::Render() {
  Metrics& m = *metrics_;
  {
    absl::MutexLock lock(&m.render_mutex);
    const double cpu_s = static_cast<double>(ProcessCpuUs()) * kUs;
    if (cpu_s > m.process_cpu.Value()) m.process_cpu.Increment(cpu_s - m.process_cpu.Value());
    m.process_memory.Set(static_cast<double>(ResidentBytes()));
    m.process_fds.Set(OpenFiles());
    RenderScheduler();
    m.step_metrics.Fold();
  }
  return RenderMetrics();
}

}  // namespace weft::router

// The series of the router's metrics: their names, labels and help, and the one object that holds
// them. A part of probe.cc.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/metrics.h"
#include "common/version.h"
#include "router/observe/probe.h"
#include "router/observe/step_metrics.h"
#include "router/observe/tenant_metrics.h"

namespace weft::router {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

// Label values, in the order of the enums.
constexpr const char* kRejects[] = {"queue_requests", "queue_tokens", "draining", "too_long",
                                    "not_ready",      "text_bytes",   "tenant",   "identity"};
constexpr const char* kFailures[] = {"validation", "overloaded", "unavailable",
                                     "deadline",   "shard_lost", "internal"};
constexpr const char* kPhases[] = {"text", "queue", "prefill", "decode"};
constexpr CancelReason kCancels[] = {CancelReason::kClientGone, CancelReason::kAdmin,
                                     CancelReason::kDeadline, CancelReason::kQueueTimeout,
                                     CancelReason::kSlowReader};
constexpr const char* kResumeMatches[] = {"exact", "inexact"};
constexpr const char* kRestarts[] = {"exit", "oom", "nccl", "timeout"};
constexpr const char* kGroupStates[] = {"connecting", "loading", "joining",
                                        "warming",    "serving", "recovering"};
constexpr const char* kServerStates[] = {"starting", "loading",    "warming",
                                         "ready",    "recovering", "draining"};
constexpr const char* kCalls[] = {"Info",    "Rendezvous", "JoinGroup",   "LeaveGroup", "Warmup",
                                  "Prefill", "Decode",     "FilterBatch", "MaskRows"};
constexpr const char* kDoors[] = {"tgi", "openai", "grpc"};
constexpr const char* kSteps[] = {"prefill", "decode", "filter"};
constexpr const char* kTraceDrops[] = {"queue_full", "refused", "over_cap", "shutdown"};
constexpr const char* kGrpcMethods[] = {"Generate", "GenerateBatch", "Tokenize",     "Detokenize",
                                        "Cancel",   "GetModel",      "ModelMetadata"};

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

// One metric for each value of a label; `more` is what the family's Add takes besides.
template <typename Metric, size_t N, typename... More>
std::array<Metric*, N> Labelled(Family<Metric>& family, const std::string& label,
                                const char* const (&values)[N], const More&... more) {
  std::array<Metric*, N> out;
  for (size_t i = 0; i < N; ++i) out[i] = &family.Add({{label, values[i]}}, more...);
  return out;
}

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
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
    absl::MutexLock lock(&now_mutex);
    AddGroups(1);
  }

  void AddGroups(size_t groups) ABSL_EXCLUSIVE_LOCKS_REQUIRED(now_mutex) {
    while (now.size() < groups) {
      const std::string group = absl::StrCat(now.size());
      GroupNow& added = now.emplace_back();
      added.serving_gauge = &group_serving.Add({{"group", group}});
      added.running = &group_requests.Add({{"group", group}, {"state", "running"}});
      added.waiting = &group_requests.Add({{"group", group}, {"state", "waiting"}});
      added.kv_usage = &group_kv_usage.Add({{"group", group}});
    }
  }

  void ShowGroupStates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(now_mutex) {
    std::array<int, 6> in_state = {};
    Epoch highest = 0;
    for (const GroupNow& group : now) {
      ++in_state[static_cast<size_t>(group.state)];
      highest = std::max(highest, group.epoch);
    }
    for (size_t i = 0; i < in_state.size(); ++i) group_states[i]->Set(in_state[i]);
    epoch.Set(static_cast<double>(highest));
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
      Labelled(CounterFamily("weft_request_failure_total", "Requests failed, by reason"), "reason",
               kFailures);
  std::array<Counter*, std::size(kRejects)> rejects =
      Labelled(CounterFamily("weft_admission_rejections_total",
                             "Requests turned away before they ran, by reason"),
               "reason", kRejects);
  Family<Counter>& cancelled_family = CounterFamily(
      "weft_requests_cancelled_total", "Requests cancelled, by whom and in which phase");
  std::array<std::array<Counter*, 4>, std::size(kCancels)> cancelled;
  std::array<Counter*, 2> resumed =
      Labelled(CounterFamily("weft_requests_resumed_total",
                             "Requests that went on with an answer begun elsewhere, by whether "
                             "their tokens are those that would have come"),
               "match", kResumeMatches);
  std::array<Counter*, 3> ignored = Labelled(
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
  Family<Gauge>& kv_blocks = GaugeFamily("weft_kv_blocks", "KV blocks of the pool, by state");
  Gauge& kv_used = kv_blocks.Add({{"state", "used"}});
  Gauge& kv_cached = kv_blocks.Add({{"state", "cached"}});
  Gauge& kv_free = kv_blocks.Add({{"state", "free"}});
  Family<Gauge>& kv_group_blocks =
      GaugeFamily("weft_kv_group_blocks", "KV blocks of a KV group, by state");
  struct KvGroup {
    Gauge* used;
    Gauge* cached;
  };
  std::vector<KvGroup> kv_groups ABSL_GUARDED_BY(now_mutex);
  Family<Gauge>& cache_config =
      GaugeFamily("weft_cache_config_info", "Shape of the KV cache; always 1");
  Gauge* cache_config_now = nullptr;
  // By group, 0 until it has formed.
  std::vector<uint32_t> cache_blocks;
  Counter& prefix_queries =
      OneCounter("weft_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  Counter& prefix_hits =
      OneCounter("weft_prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  Counter& evicted =
      OneCounter("weft_prefix_cache_evicted_blocks_total", "Cached blocks taken for other use");
  Counter& preemptions =
      OneCounter("weft_num_preemptions_total", "Sequences that gave their KV blocks back");
  // What the groups' schedulers last said, and what of it the counters have.
  struct GroupNow {
    SchedulerStats stats;
    bool serving = false;
    GroupState state = GroupState::kConnecting;
    Epoch epoch = 0;
    Gauge *serving_gauge, *running, *waiting, *kv_usage;
  };
  absl::Mutex now_mutex;
  std::vector<GroupNow> now ABSL_GUARDED_BY(now_mutex);
  uint32_t undispatched_now ABSL_GUARDED_BY(now_mutex) = 0;
  SchedulerStats seen;

  // Traces of requests.
  Counter& traces_exported =
      OneCounter("weft_traces_exported_total", "Traces of requests that a collector took");
  std::array<Counter*, std::size(kTraceDrops)> traces_dropped =
      Labelled(CounterFamily("weft_traces_dropped_total",
                             "Traces of requests that reached no collector, by reason"),
               "reason", kTraceDrops);

  Counter& watchdog_stalls = OneCounter(
      "weft_watchdog_stalls_total", "Times that a thread with work was found not to come round");

  // Steps.
  Histogram& iteration_tokens =
      OneHistogram("weft_iteration_tokens_total", "Tokens of a step", IterationTokensBuckets());
  std::array<Counter*, 3> steps =
      Labelled(CounterFamily("weft_steps_total", "Steps run, by kind"), "kind", kSteps);
  std::array<Histogram*, 3> batch_size = Labelled(
      HistogramFamily("weft_batch_size", "Sequences in a step"), "phase", kSteps, count_buckets);
  std::array<Histogram*, 3> forward =
      Labelled(HistogramFamily("weft_batch_forward_duration_seconds", "Device time of a step"),
               "phase", kSteps, StepDurationBuckets());
  std::array<Histogram*, 3> host =
      Labelled(HistogramFamily("weft_batch_host_duration_seconds", "Host time of a step"), "phase",
               kSteps, StepDurationBuckets());
  std::array<Histogram*, 3> queue = Labelled(
      HistogramFamily("weft_batch_queue_duration_seconds", "Wait of a step for the one before"),
      "phase", kSteps, StepDurationBuckets());
  std::array<Histogram*, 3> wire = Labelled(
      HistogramFamily("weft_batch_wire_duration_seconds", "Call time of a step less the shard's"),
      "phase", kSteps, StepDurationBuckets());
  Gauge& last_progress =
      OneGauge("weft_engine_last_progress_timestamp_seconds", "Unix time of the last step's end");

  // Shards.
  std::array<Gauge*, 6> server_states = Labelled(
      GaugeFamily("weft_server_state", "1 for the state the server is in"), "state", kServerStates);
  std::array<Gauge*, 6> group_states =
      Labelled(GaugeFamily("weft_group_state", "Shard groups in the state"), "state", kGroupStates);
  Gauge& epoch = OneGauge("weft_group_epoch", "Epoch of the shard group; highest of all groups");
  Family<Gauge>& group_serving =
      GaugeFamily("weft_group_serving", "1 while the shard group runs steps");
  Family<Gauge>& group_requests =
      GaugeFamily("weft_group_requests", "Requests that a shard group runs, or holds until it can");
  Family<Gauge>& group_kv_usage =
      GaugeFamily("weft_group_kv_usage_perc", "Share of a shard group's KV blocks in use, 0 .. 1");
  Gauge& undispatched =
      OneGauge("weft_num_requests_undispatched", "Requests admitted that no shard group has yet");
  Family<Counter>& placement_family =
      CounterFamily("weft_placements_total", "Requests handed to one of several shard groups, for");
  Counter& placed_by_prefix = placement_family.Add({{"reason", "prefix"}});
  Counter& placed_by_load = placement_family.Add({{"reason", "load"}});
  Counter& given_back =
      OneCounter("weft_requests_given_back_total", "Requests that lost shard groups had not begun");
  Family<Counter>& group_loss_family =
      CounterFamily("weft_group_losses_total",
                    "Epochs and attempts to form one that were lost, by the group's state");
  // By state; those that a group can be lost in, the others are null.
  std::array<Counter*, 6> group_losses = {};
  std::array<Counter*, 3> steps_lost =
      Labelled(CounterFamily("weft_steps_lost_total",
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
  std::array<Histogram*, 9> rpc =
      Labelled(HistogramFamily("weft_shard_rpc_duration_seconds", "Time of a call to a shard"),
               "method", kCalls, StepDurationBuckets());
  std::array<Counter*, 4> restarts =
      Labelled(CounterFamily("weft_shard_restarts_total", "Shards restarted, by reason"), "reason",
               kRestarts);

  // Tenants.
  TenantMetrics tenants;
  std::function<TenantUseBook::Reading()> read_tenants;
  MetricsCompat compat;

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

}  // namespace weft::router

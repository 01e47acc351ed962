#include "router/observe/compat_metrics.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/client_metric.h"

namespace weft::router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

struct Value {
  std::string ours;
  std::string theirs;
};

// One of our families as a source of one of theirs.
struct Source {
  std::string name;
  // The label that changes; the others stay as they are. Empty = none.
  std::string label = {};
  // Its name there; empty = it goes.
  std::string their_label = {};
  // Its values, of which others are left out; empty = all, as they are.
  std::vector<Value> values = {};
};

// One of their families. Series whose labels become the same are added up: of counters alone.
struct Alias {
  std::string name;
  std::vector<Source> sources;
};

// What vLLM and weft have under one stem: vllm:STEM is weft_STEM.
std::vector<Alias> VllmAliases() {
  std::vector<Alias> aliases;
  for (const char* stem :
       {"num_requests_running",           "num_requests_waiting",
        "num_requests_waiting_by_reason", "kv_cache_usage_perc",
        "prefix_cache_queries_total",     "prefix_cache_hits_total",
        "num_preemptions_total",          "prompt_tokens_total",
        "prompt_tokens_cached_total",     "generation_tokens_total",
        "request_success_total",          "iteration_tokens_total",
        "time_to_first_token_seconds",    "inter_token_latency_seconds",
        "time_per_output_token_seconds",  "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",    "request_queue_time_seconds",
        "request_prefill_time_seconds",   "request_decode_time_seconds",
        "request_inference_time_seconds", "request_prompt_tokens",
        "request_generation_tokens",      "request_max_num_generation_tokens",
        "request_params_max_tokens"}) {
    aliases.push_back({absl::StrCat("vllm:", stem), {{absl::StrCat("weft_", stem)}}});
  }
  aliases.push_back(
      {"vllm:cache_config_info", {{"weft_cache_config_info", "num_blocks", "num_gpu_blocks"}}});
  return aliases;
}

std::vector<Alias> TgiAliases() {
  return {
      {"tgi_request_count",
       {{"weft_request_success_total", "finished_reason"},
        {"weft_request_failure_total", "reason"}}},
      {"tgi_request_success",
       {{"weft_request_success_total",
         "finished_reason",
         "",
         {{"stop", "stop"}, {"length", "length"}}}}},
      {"tgi_request_failure",
       {{"weft_request_failure_total",
         "reason",
         "err",
         {{"validation", "validation"},
          {"overloaded", "overloaded"},
          {"unavailable", "generation"},
          {"deadline", "generation"},
          {"shard_lost", "generation"},
          {"internal", "generation"}}}}},
      {"tgi_request_input_length", {{"weft_request_prompt_tokens"}}},
      {"tgi_request_max_new_tokens", {{"weft_request_params_max_tokens"}}},
      {"tgi_request_generated_tokens", {{"weft_request_generation_tokens"}}},
      {"tgi_request_duration", {{"weft_e2e_request_latency_seconds"}}},
      {"tgi_request_validation_duration", {{"weft_request_validation_time_seconds"}}},
      {"tgi_request_queue_duration", {{"weft_request_queue_time_seconds"}}},
      {"tgi_request_inference_duration", {{"weft_request_inference_time_seconds"}}},
      {"tgi_request_mean_time_per_token_duration",
       {{"weft_request_time_per_output_token_seconds"}}},
      {"tgi_queue_size", {{"weft_num_requests_waiting"}}},
      {"tgi_batch_current_size", {{"weft_num_requests_running"}}},
      {"tgi_batch_next_size", {{"weft_batch_size", "phase", "", {{"prefill", "prefill"}}}}},
      {"tgi_batch_inference_duration",
       {{"weft_shard_rpc_duration_seconds",
         "method",
         "method",
         {{"Prefill", "prefill"}, {"Decode", "decode"}}}}},
      {"tgi_batch_forward_duration",
       {{"weft_batch_forward_duration_seconds",
         "phase",
         "method",
         {{"prefill", "prefill"}, {"decode", "decode"}}}}},
  };
}

// Makes the labels theirs; false when the series is none of theirs.
bool Relabel(const Source& source, std::vector<ClientMetric::Label>* labels) {
  const auto at = std::find_if(labels->begin(), labels->end(),
                               [&source](const auto& label) { return label.name == source.label; });
  if (at == labels->end()) return true;
  if (!source.values.empty()) {
    const auto value =
        std::find_if(source.values.begin(), source.values.end(),
                     [&at](const Value& candidate) { return candidate.ours == at->value; });
    if (value == source.values.end()) return false;
    at->value = value->theirs;
  }
  if (source.their_label.empty()) {
    labels->erase(at);
  } else {
    at->name = source.their_label;
  }
  return true;
}

void AddSeries(const Source& source, const MetricFamily& ours, MetricFamily* theirs) {
  theirs->type = ours.type;
  theirs->help = absl::StrCat("As ", source.name, ": ", ours.help);
  for (ClientMetric series : ours.metric) {
    if (!Relabel(source, &series.label)) continue;
    const auto same =
        std::find_if(theirs->metric.begin(), theirs->metric.end(),
                     [&series](const ClientMetric& had) { return had.label == series.label; });
    if (same == theirs->metric.end()) {
      theirs->metric.push_back(std::move(series));
    } else {
      same->counter.value += series.counter.value;
    }
  }
}

void Append(const std::vector<Alias>& aliases, std::vector<MetricFamily>* families) {
  const size_t own = families->size();
  for (const Alias& alias : aliases) {
    MetricFamily theirs;
    theirs.name = alias.name;
    for (const Source& source : alias.sources) {
      for (size_t i = 0; i < own; ++i) {
        if ((*families)[i].name == source.name) AddSeries(source, (*families)[i], &theirs);
      }
    }
    if (!theirs.metric.empty()) families->push_back(std::move(theirs));
  }
}

}  // namespace

void AddCompatMetrics(const MetricsCompat& compat, std::vector<MetricFamily>* families) {
  static const auto* const tgi = new std::vector<Alias>(TgiAliases());
  static const auto* const vllm = new std::vector<Alias>(VllmAliases());
  // Neither has a source among the other's.
  if (compat.tgi) Append(*tgi, families);
  if (compat.vllm) Append(*vllm, families);
}

}  // namespace weft::router

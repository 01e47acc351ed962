#include "router/observe/probe.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/metrics.h"
#include "common/process_stat.h"
#include "common/thread.h"
#include "router/observe/probe_metrics.inc.h"

namespace weft::router {
namespace {

constexpr double kUs = 1e-6;

// What dashboards divide by: a counter that follows a total owned by somebody else.
void Follow(Counter& counter, uint64_t total, uint64_t* seen) {
  if (total > *seen) counter.Increment(static_cast<double>(total - *seen));
  *seen = total;
}

double Share(uint32_t part, uint32_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// What is shown of all groups; tenants are not.
void Add(const SchedulerStats& group, SchedulerStats* sum) {
  sum->running += group.running;
  sum->waiting += group.waiting;
  sum->blocks_total += group.blocks_total;
  sum->blocks_used += group.blocks_used;
  sum->blocks_cached += group.blocks_cached;
  sum->kv_groups = std::max(sum->kv_groups, group.kv_groups);
  for (uint32_t i = 0; i < group.kv_groups; ++i) {
    sum->group_blocks_used[i] += group.group_blocks_used[i];
    sum->group_blocks_cached[i] += group.group_blocks_cached[i];
  }
  sum->preemptions += group.preemptions;
  sum->prefix_queried_tokens += group.prefix_queried_tokens;
  sum->prefix_hit_tokens += group.prefix_hit_tokens;
  sum->evicted_blocks += group.evicted_blocks;
}

}  // namespace

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

void Probe::Rejected(RejectReason reason, const Tenant* tenant) {
  if (tenant != nullptr && tenant->meter != nullptr) tenant->meter->use().AddRejection();
  metrics_->rejects[static_cast<size_t>(reason)]->Increment();
}

void Probe::Resumed(bool exact) { metrics_->resumed[exact ? 0 : 1]->Increment(); }

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

// -- Traces of requests --------------------------------------------------------------------------

void Probe::TracesExported(uint64_t count) {
  metrics_->traces_exported.Increment(static_cast<double>(count));
}

void Probe::TracesDropped(TraceDrop why, uint64_t count) {
  metrics_->traces_dropped[static_cast<size_t>(why)]->Increment(static_cast<double>(count));
}

void Probe::ThreadStuck() { metrics_->watchdog_stalls.Increment(); }

// -- Scheduler and steps -------------------------------------------------------------------------

void Probe::Scheduler(const SchedulerStats& stats, bool serving, uint32_t group) {
  absl::MutexLock lock(&metrics_->now_mutex);
  metrics_->AddGroups(group + 1);
  metrics_->now[group].stats = stats;
  metrics_->now[group].serving = serving;
}

void Probe::RenderScheduler() {
  Metrics& m = *metrics_;
  absl::MutexLock lock(&m.now_mutex);
  SchedulerStats stats;
  uint32_t deferred = 0;
  bool any_serving = false;
  for (const Metrics::GroupNow& group : m.now) {
    Add(group.stats, &stats);
    if (!group.serving) deferred += group.stats.waiting;
    any_serving |= group.serving;
    group.serving_gauge->Set(group.serving ? 1 : 0);
    group.running->Set(group.stats.running);
    group.waiting->Set(group.stats.waiting);
    group.kv_usage->Set(Share(group.stats.blocks_used, group.stats.blocks_total));
  }
  stats.waiting += m.undispatched_now;
  if (!any_serving) deferred += m.undispatched_now;
  m.undispatched.Set(m.undispatched_now);
  m.running.Set(stats.running);
  m.waiting.Set(stats.waiting);
  m.waiting_capacity.Set(stats.waiting - deferred);
  m.waiting_deferred.Set(deferred);
  m.kv_used.Set(stats.blocks_used);
  m.kv_cached.Set(stats.blocks_cached);
  m.kv_free.Set(static_cast<double>(stats.blocks_total) - stats.blocks_used - stats.blocks_cached);
  // One group until the shards have said how many there are.
  while (m.kv_groups.size() < std::max(stats.kv_groups, 1u)) {
    const std::string group = absl::StrCat(m.kv_groups.size());
    m.kv_groups.push_back({&m.kv_group_blocks.Add({{"group", group}, {"state", "used"}}),
                           &m.kv_group_blocks.Add({{"group", group}, {"state", "cached"}})});
  }
  for (uint32_t group = 0; group < stats.kv_groups; ++group) {
    m.kv_groups[group].used->Set(stats.group_blocks_used[group]);
    m.kv_groups[group].cached->Set(stats.group_blocks_cached[group]);
  }
  m.kv_usage.Set(Share(stats.blocks_used, stats.blocks_total));
  Follow(m.preemptions, stats.preemptions, &m.seen.preemptions);
  Follow(m.prefix_queries, stats.prefix_queried_tokens, &m.seen.prefix_queried_tokens);
  Follow(m.prefix_hits, stats.prefix_hit_tokens, &m.seen.prefix_hit_tokens);
  Follow(m.evicted, stats.evicted_blocks, &m.seen.evicted_blocks);
}

void Probe::CacheConfig(uint32_t block_tokens, uint32_t blocks, bool prefix_cache, uint32_t group) {
  Metrics& m = *metrics_;
  absl::MutexLock lock(&m.now_mutex);
  if (m.cache_blocks.size() <= group) m.cache_blocks.resize(group + 1);
  m.cache_blocks[group] = blocks;
  blocks = std::accumulate(m.cache_blocks.begin(), m.cache_blocks.end(), 0u);
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

// -- Groups --------------------------------------------------------------------------------------

void Probe::SetGroups(uint32_t groups) {
  absl::MutexLock lock(&metrics_->now_mutex);
  metrics_->AddGroups(groups);
  metrics_->ShowGroupStates();
}

void Probe::Undispatched(uint32_t requests) {
  absl::MutexLock lock(&metrics_->now_mutex);
  metrics_->undispatched_now = requests;
}

void Probe::Placed(bool for_prefix) {
  (for_prefix ? metrics_->placed_by_prefix : metrics_->placed_by_load).Increment();
}

void Probe::GivenBack() { metrics_->given_back.Increment(); }

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

void Probe::SetGroupState(GroupState state, Epoch epoch, uint32_t group) {
  absl::MutexLock lock(&metrics_->now_mutex);
  metrics_->AddGroups(group + 1);
  metrics_->now[group].state = state;
  metrics_->now[group].epoch = epoch;
  metrics_->ShowGroupStates();
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

void Probe::FollowTenants(std::function<TenantUseBook::Reading()> read) {
  metrics_->read_tenants = std::move(read);
}

void Probe::SetCompat(const MetricsCompat& compat) { metrics_->compat = compat; }

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
    if (m.read_tenants) m.tenants.Update(m.read_tenants());
  }
  return RenderMetrics([&m](std::vector<prometheus::MetricFamily>* families) {
    AddCompatMetrics(m.compat, families);
  });
}

}  // namespace weft::router

// All metrics of the router process, one method per event, so that logic code says
// probe.StepDone(...) and never names a metric; and the timeline, which is kept only while somebody
// takes one. Made once by main and lent to doors and engine.
// Every series exists at zero from the construction on. Thread-safe; per-token work is batched: one
// call per step, not per token.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/observe/compat_metrics.h"
#include "router/observe/outcomes.h"
#include "router/observe/timeline.h"
#include "router/request.h"
#include "router/scheduler/scheduler.h"
#include "router/shards/call.h"
#include "router/shards/group_state.h"
#include "router/tenants/tenant.h"
#include "router/tenants/tenant_use.h"

namespace weft::router {

// Defined in router/doors, which includes this file: a door's name and what its readiness says.
enum class Door : uint8_t;
enum class ServerState : uint8_t;

// A request that ended with FinishedEvent. Times in microseconds.
struct FinishedSample {
  FinishReason reason = FinishReason::kLength;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  int64_t prefill_us = 0;  // from the first step that held it to its first token
  int64_t decode_us = 0;   // from the first token to the last
  int64_t total_us = 0;    // from its arrival to the end
};

// A step that ran, as the router saw it. Times in microseconds.
struct StepSample {
  StepKind kind = StepKind::kDecode;
  uint32_t tokens = 0;   // prompt tokens and decode rows together
  uint32_t rows = 0;     // sequences in the step
  int64_t host_us = 0;   // Plan() and building the calls, and the shard's preparation
  int64_t queue_us = 0;  // waiting on the shard for the step before
  int64_t device_us = 0;
  int64_t wire_us = 0;  // the call's time less the shard's
};

class Probe {
 public:
  // `context_tokens_max` bounds the buckets of token counts.
  explicit Probe(uint32_t context_tokens_max = 131072);
  ~Probe();

  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // -- Requests ----------------------------------------------------------------------------------
  // Admission took it. `max_tokens` with every default applied.
  void RequestAccepted(uint32_t prompt_tokens, uint32_t cached_tokens, uint32_t max_tokens,
                       int64_t validation_us);
  // Says more of a failure, which is counted besides. `tenant`: who was turned away; null where
  // that is not known.
  void Rejected(RejectReason reason, const Tenant* tenant = nullptr);
  // A request that goes on with an answer began to; `exact`: with the tokens that would have come.
  void Resumed(bool exact);
  // A request left the queue for its first step.
  void LeftQueue(int64_t queue_us);
  void FirstToken(int64_t since_arrival_us);
  // Times between tokens of one step's streams; one call per step.
  void InterTokens(absl::Span<const uint32_t> gaps_us);
  void GeneratedTokens(uint32_t count);
  void Finished(const FinishedSample& sample);
  void Failed(FailureReason reason);
  // Counts as aborted without an error, or as failed when its client was told of one. `by` is a
  // reason to end a request that is not complete.
  void Cancelled(CancelReason by, CancelPhase phase);
  void IgnoredFields(Door door, uint32_t count);

  // -- Scheduler and steps -----------------------------------------------------------------------
  // What the next Render shows, with the sums over all groups. `serving`: the group runs steps, so
  // that who waits does so for slots or KV blocks.
  void Scheduler(const SchedulerStats& stats, bool serving, uint32_t group = 0);
  void CacheConfig(uint32_t block_tokens, uint32_t blocks, bool prefix_cache, uint32_t group = 0);
  void StepDone(const StepSample& sample);

  // -- Groups of shards --------------------------------------------------------------------------
  // From now on there are so many. Before any other of these.
  void SetGroups(uint32_t groups);
  // Requests that no group has yet.
  void Undispatched(uint32_t requests);
  // A group got a request: for the prefix that it holds, or because it had least to do.
  void Placed(bool for_prefix);
  // A lost group gave a request back.
  void GivenBack();

  // -- Shards, whose ranks are counted through all groups ----------------------------------------
  void SetWorld(uint32_t world);
  void SetGroupState(GroupState state, Epoch epoch, uint32_t group = 0);
  // The epoch, or the attempt to form it, ended in `state`: joining, warming or serving.
  void GroupLost(GroupState state);
  // A step was sent and not answered when its group was lost.
  void StepLost(StepKind kind);
  void Recovered(int64_t recovery_us);
  void ShardUp(Rank rank, bool up);
  void ShardLoad(Rank rank, uint64_t bytes_done, uint64_t bytes_total, double seconds);
  void ShardRestarted(RestartReason reason);
  void ShardStep(Rank rank, int64_t device_us);
  void ShardRpc(ShardCall call, int64_t call_us);
  void SetServerState(ServerState state);

  // -- Doors -------------------------------------------------------------------------------------
  void HttpConnections(int64_t delta);
  // A route that is served, before the first request for it.
  void HttpRoute(absl::string_view route);
  // `route` is one of the routes served, or "other".
  void HttpHandled(absl::string_view route, int code);
  // `code` in capitals, as OK or INVALID_ARGUMENT.
  void GrpcHandled(absl::string_view method, absl::string_view code, int64_t handling_us);

  // -- Traces of requests ------------------------------------------------------------------------
  void TracesExported(uint64_t count);
  void TracesDropped(TraceDrop why, uint64_t count);

  // A thread that has work did not come round (common/watchdog.h).
  void ThreadStuck();

  // -- What is shown -----------------------------------------------------------------------------
  // Where Render reads what tenants have used, on its thread. Once, before the doors open.
  void FollowTenants(std::function<TenantUseBook::Reading()> read);
  // Other servers' names that Render shows besides. Before the doors open.
  void SetCompat(const MetricsCompat& compat);
  // Everything in Prometheus text format, process_* read now.
  std::string Render();

  // What `weft trace` collects.
  Timeline& timeline() { return timeline_; }

 private:
  struct Metrics;

  // Gauges as the scheduler last said, counters by what changed since.
  void RenderScheduler();

  std::unique_ptr<Metrics> metrics_;
  Timeline timeline_;
};

}  // namespace weft::router

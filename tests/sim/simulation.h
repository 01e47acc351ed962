// A seeded simulation of the scheduler: random requests, cancellations, answers and lost groups
// against MockShard, with everything checked after every event. A broken rule aborts the process
// with a message; a caller that wants to survive it forks first.

#pragma once

#include <cstdint>
#include <functional>

#include "router/scheduler/scheduler.h"

namespace weft::router {

struct SimulationOptions {
  uint64_t seed = 1;
  // Split over worlds: runs of their own with random configurations.
  uint32_t requests = 10000;
  uint32_t worlds = 10;
  // Also Scheduler::CheckInvariantsForTest() after every event. Off, only what can be seen from
  // outside counts.
  bool check_invariants = true;
  // Several KV groups, most of them with windows; off, one that sees the whole context.
  bool kv_windows = false;
  // Called with the new scheduler of each world, before its first event.
  std::function<void(const SchedulerConfig&, Scheduler*)> on_scheduler;
};

// How often what the simulation is for did happen.
struct SimulationReport {
  uint64_t events = 0;
  uint64_t steps = 0;
  uint64_t tokens = 0;
  uint64_t ended_by_length = 0;
  uint64_t ended_by_eos = 0;
  uint64_t cancelled = 0;
  uint64_t cancelled_in_flight = 0;
  uint64_t cancelled_mid_prompt = 0;
  uint64_t preemptions = 0;
  // Of them, those that passed over somebody younger who was just let in; and decode rows that
  // stood still because everybody else was.
  uint64_t kept_from_preemption = 0;
  uint64_t stood_still = 0;
  uint64_t results_after_preemption = 0;
  uint64_t rows_in_vain = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t evicted_blocks = 0;
  // Of KV groups with a window, see MockShard::WindowReport.
  uint64_t blocks_left = 0;
  uint64_t window_hits = 0;
  uint64_t rolled = 0;
  uint64_t came_back = 0;
  uint64_t groups_lost = 0;
  // Times that the prefix cache was flushed, and blocks that went.
  uint64_t flushes = 0;
  uint64_t flushed_blocks = 0;
  // Requests that ended because groups were lost with them: those whose own steps lost them, and
  // those that happened to be there.
  uint64_t poisoned = 0;
  uint64_t unlucky = 0;
  uint64_t mixed_steps = 0;
  uint64_t chunked_prompts = 0;
  // Of all plans; equal for equal seeds.
  uint64_t digest = 0;
};

SimulationReport RunSimulation(const SimulationOptions& options);

}  // namespace weft::router

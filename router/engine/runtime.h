// What the router stands on: the clock, whoever runs its loops, where the engine loop waits, random
// numbers, and the processes beside it. Everything between doors and sockets takes these from here
// and nowhere else, so that a simulation puts its own in their place (invariant engine.sim). A
// plain value, given to the core at its start; what it points to outlives the core.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/executor.h"
#include "common/limits.h"
#include "router/engine/random_id.h"
#include "router/shards/poller.h"
#include "router/shards/supervisor_client.h"
#include "router/shards/vitals.h"

namespace weft::router {

struct Runtime {
  const Clock* clock = &MonotonicClock();
  Executor* executor = &ThreadExecutor();
  // The engine loop's; `clock` outlives it.
  std::function<std::unique_ptr<Poller>(const Clock* clock)> make_poller =
      [](const Clock* poller_clock) { return std::make_unique<SocketPoller>(poller_clock); };
  // How many steps' tokens may wait for a worker of text out.
  size_t stream_batches_max = kStreamBatchesMax;
  // 64 random bits, never 0. Any thread.
  std::function<uint64_t()> random_id = RandomId;
  // CPU time of a shard's process on this machine.
  ProcessCpuReader read_cpu = ReadShardCpuUs;
  // Who restarts shards and hears of their deaths; may give null: then they come back by
  // themselves. `on_death` may be called by any thread.
  std::function<std::unique_ptr<ShardRestarter>(const std::string& supervisor_socket,
                                                std::function<void(ShardDeath)> on_death)>
      make_restarter = MakeSupervisorClient;
};

}  // namespace weft::router

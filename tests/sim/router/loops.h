// The router's loops without threads: an Executor that gives each loop its turns on virtual time,
// a random while after it was woken, and a Poller that writes down until when the engine loop would
// wait. Owned by a world; one thread. It never looks into a loop.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/executor.h"
#include "router/shards/poller.h"
#include "tests/sim/router/virtual_time.h"

namespace weft::router::sim {

class SimExecutor : public Executor {
 public:
  // Called before every turn of any loop.
  using OnTurn = std::function<void()>;

  // A woken loop gets its turn up to `delay_us_max` later. `time` must outlive this.
  SimExecutor(uint64_t seed, int64_t delay_us_max, VirtualTime* time, OnTurn on_turn);
  ~SimExecutor() override;

  std::unique_ptr<RunningLoop> Start(const std::string& name, Turn turn, int nice) override;

  // Loops whose name begins so get no turn before `until_us`: their threads are held up.
  void Stall(absl::string_view name, int64_t until_us);
  // The poller of a loop called "engine..." or "dispatch": pollers are made in the order in which
  // these are started.
  std::unique_ptr<Poller> MakePoller();

 private:
  class Loop;
  class EnginePoller;

  const uint64_t seed_;
  const int64_t delay_us_max_;
  VirtualTime* const time_;
  const OnTurn on_turn_;
  std::vector<Loop*> loops_;
  size_t pollers_ = 0;
};

}  // namespace weft::router::sim

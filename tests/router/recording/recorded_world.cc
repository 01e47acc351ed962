#include "tests/router/recording/recorded_world.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace weft::router {

recording::RecordOptions UnhurriedOptions(const std::string& path) {
  recording::RecordOptions options;
  options.path = path;
  options.pending_bytes_max = uint64_t{1} << 32;
  return options;
}

RecordedWorld RecordWorld(uint64_t seed, uint32_t requests, bool kv_windows,
                          const recording::RecordOptions& options, bool awaits_end) {
  auto recorder = Recorder::Create(options, /*recording=*/seed);
  REQUIRE(recorder.ok());
  SimulationOptions simulation;
  simulation.seed = seed;
  simulation.requests = requests;
  simulation.worlds = 1;
  simulation.check_invariants = false;
  simulation.kv_windows = kv_windows;
  simulation.on_scheduler = [&recorder](const SchedulerConfig& config, Scheduler* scheduler) {
    (*recorder)->Begin(config, scheduler);
  };
  RecordedWorld world;
  world.report = RunSimulation(simulation);
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (awaits_end && !(*recorder)->ended() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(2));
  }
  world.ended = (*recorder)->ended();
  (*recorder)->Finish();
  return world;
}

}  // namespace weft::router

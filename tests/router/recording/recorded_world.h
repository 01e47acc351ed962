// What the tests of recordings share: one world of the simulation (tests/sim), recorded, and the
// files that come of it. One thread besides the recording's own.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "router/recording/part_writer.h"
#include "router/recording/recorder.h"
#include "router/recording/replay.h"
#include "tests/sim/simulation.h"

namespace weft::router {

struct RecordedWorld {
  SimulationReport report;
  // The recording ended before the world did.
  bool ended = false;
};

// Options for a recording at `path` that a simulation, which is never slower than the disk, does
// not outrun.
recording::RecordOptions UnhurriedOptions(const std::string& path);

// Runs a world of `requests` and records it.
RecordedWorld RecordWorld(uint64_t seed, uint32_t requests, bool kv_windows,
                          const recording::RecordOptions& options);

}  // namespace weft::router

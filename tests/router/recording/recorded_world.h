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
  // The recording ended before it was finished.
  bool ended = false;
};

// Options for a recording at `path` that a simulation, which is never slower than the disk, does
// not outrun.
recording::RecordOptions UnhurriedOptions(const std::string& path);

// Runs a world of `requests` and records it. `awaits_end`: the recording ends by itself, as soon as
// its thread has written what it cannot write, which is waited for.
RecordedWorld RecordWorld(uint64_t seed, uint32_t requests, bool kv_windows,
                          const recording::RecordOptions& options, bool awaits_end = false);

}  // namespace weft::router

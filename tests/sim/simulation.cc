#include "tests/sim/simulation.h"

#include <algorithm>

#include "tests/sim/world.h"

namespace weft::router {

SimulationReport RunSimulation(const SimulationOptions& options) {
  SimulationReport report;
  uint32_t left = options.requests;
  for (uint32_t i = 0; i < options.worlds; ++i) {
    const uint32_t share = left / (options.worlds - i);
    left -= share;
    World(Mix(options.seed * 1000 + i), share, options, &report).Run();
  }
  return report;
}

}  // namespace weft::router

// The computing half of a CPU shard: weights, KV pool, the forward and the sampler behind the
// ModelRunner interface. Created once, by the main thread, which also loads the weights; then owned
// by the executor and called by the device thread only, which becomes compute thread 0. Knows
// nothing of the wire.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "shard/device/cpu/planner.h"
#include "shard/device/model_runner.h"
#include "shard/kv/memory_plan.h"
#include "shard/weights/loader.h"

namespace weft::shard {

struct CpuRunnerOptions {
  // Types, pool size and limits; `memory.threads` are the compute threads, the device thread
  // included.
  MemoryFlags memory;
  // Instruction set of --cpu-isa; empty = the best of this machine.
  std::string isa;
  // Which operations of the forward may be joined; tests leave some out.
  absl::Span<const PlanRule* const> rules = CpuPlanRules();
};

class CpuModelRunner : public ModelRunner {
 public:
  // As planned before the load, with weights_bytes as they came out. Any thread.
  virtual const MemoryPlan& memory() const = 0;
  // Instruction set in use now. Any thread.
  virtual std::string isa() const = 0;
  // Of all steps so far. Any thread.
  virtual HelperCosts helper_costs() const = 0;
};

// Instruction sets this machine can run, best first (Info.isa_supported).
std::vector<std::string> SupportedInstructionSets();

// Plans memory, loads and packs the weights of `slice` with `progress`, starts the compute threads.
// *cancel ends the load with CANCELLED. INVALID_ARGUMENT for an unknown or unsupported isa or
// dtype.
absl::StatusOr<std::unique_ptr<CpuModelRunner>> CreateCpuModelRunner(
    const CpuRunnerOptions& options, ModelFiles& files, const SlicePlan& slice,
    LoadProgress& progress, const std::atomic<bool>& cancel);

}  // namespace weft::shard

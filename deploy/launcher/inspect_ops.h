// `weft inspect --plan`: the operations that rank 0 runs in a step, with the bytes that each has to
// read and the time that takes at best. From the files' headers alone; nothing is loaded. Main
// thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/json.hpp"
#include "common/flags.h"
#include "deploy/launcher/inspect_plans.h"
#include "shard/model/layer_plan.h"
#include "shard/weights/loader.h"

namespace weft::launcher {

// Which step is shown.
struct StepOptions {
  bool shown = false;
  uint32_t shards = 1;
  // Sequences that decode, and the tokens of context that each has read; 0 = 1,024, or the model's
  // context where that is shorter.
  uint32_t decode_rows = 1;
  uint32_t context = 0;
  // Tokens of one prompt's chunk beside them, from its beginning; 0 = none.
  uint32_t prompt_tokens = 0;
  // 0 = an H200's on CUDA, unknown on the CPU.
  double limit_gbytes_per_s = 0;
};
void DeclareStepFlags(Flags& flags, StepOptions* options);

// One operation, or the same one in `times` layers from `op.layer` on.
struct StepOp {
  shard::PlanOp op;
  uint32_t times = 1;
  // Of one time: matrices, keys and values, activations read and written.
  uint64_t bytes = 0;
};

struct StepOps {
  bool cuda = false;
  // The step, with the context that it has.
  StepOptions step;
  std::vector<StepOp> ops;
  // Of the model; operations behind the layers have this number.
  uint32_t layers = 0;
  // Of all operations.
  uint64_t bytes = 0;
  // 0 = unknown.
  double gbytes_per_s = 0;
};

// INVALID_ARGUMENT naming the flag, and what PlanModel refuses.
absl::StatusOr<StepOps> PlanStep(const shard::ModelFiles& files, const PlanOptions& plan,
                                 const StepOptions& step);

// A table, layers that are alike in one block.
std::string StepText(const StepOps& ops);
// The same: "ops" in their order, each with its first layer and the number of layers like it.
boost::json::object StepJson(const StepOps& ops);

}  // namespace weft::launcher

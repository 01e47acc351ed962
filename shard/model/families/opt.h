// OPT: learned positions that begin at the third row of their table, LayerNorm, ReLU; the 350M
// model with norms behind its sums and an embedding of another width. Called once while a model is
// opened; pure. Names: transformers' OPTForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> OptFromHf(const HfConfig& config);

}  // namespace weft::shard

// Phi-1, Phi-1.5 and Phi-2: rotary positions on a part of each head, attention and MLP side by side
// with one norm for both. Called once while a model is opened; pure. Names: transformers'
// PhiForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> PhiFromHf(const HfConfig& config);

}  // namespace weft::shard

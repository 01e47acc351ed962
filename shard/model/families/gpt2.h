// GPT-2: learned positions, LayerNorm, biases everywhere, a MLP without a gate; matrices are stored
// transposed. Called once while a model is opened; pure. Names: transformers' GPT2LMHeadModel.

#pragma once

#include "absl/status/statusor.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> Gpt2FromHf(const HfConfig& config);

}  // namespace weft::shard

// MPT: ALiBi, LayerNorm without biases, query, key and value cut to a range in some. Called once
// while a model is opened; pure. Names: transformers' MptForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> MptFromHf(const HfConfig& config);

}  // namespace weft::shard

// GPT-2: learned positions, LayerNorm, biases everywhere, a MLP without a gate; matrices are stored
// transposed. Called once while a model is opened; pure. Names: transformers' GPT2LMHeadModel.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> Gpt2FromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Gpt2FromGguf(const GgufFile& file);

}  // namespace weft::shard

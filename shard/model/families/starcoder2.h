// StarCoder2: Llama's attention under LayerNorm, a MLP without a gate, biases. Called once while a
// model is opened; pure. Names: transformers' Starcoder2ForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> Starcoder2FromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Starcoder2FromGguf(const GgufFile& file);

}  // namespace weft::shard

// StableLM: Llama's tensors under LayerNorm with biases, rotary positions on a part of each head,
// biases on query, key and value where the file says so. Called once while a model is opened; pure.
// Names: transformers' StableLmForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> StablelmFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> StablelmFromGguf(const GgufFile& file);

}  // namespace weft::shard

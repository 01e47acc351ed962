// The Mixtral family: Mistral with experts in place of the MLP, two of which each token takes.
// Called once while a model is opened; pure. Keys and names: transformers' MixtralForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// UNIMPLEMENTED or INVALID_ARGUMENT naming the key. Its GGUF files are "llama" (llama.h).
absl::StatusOr<ModelDescription> MixtralFromHf(const HfConfig& config);

}  // namespace weft::shard

// Phi-3, Phi-3.5 and Phi-4: Llama with query, key and value in one matrix and gate and up in one.
// Called once while a model is opened; pure. Names: transformers' Phi3ForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> Phi3FromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Phi3FromGguf(const GgufFile& file);

}  // namespace weft::shard

// The Mistral family without a sliding window (7B from v0.2 on, Nemo, Small): Llama's forward
// without biases. Turns config.json into a ModelDescription; GGUF files of Mistral models say
// "llama". Names: transformers' MistralConfig.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h; UNIMPLEMENTED for a sliding window shorter than the context.
absl::StatusOr<ModelDescription> MistralFromHf(const HfConfig& config);

}  // namespace weft::shard

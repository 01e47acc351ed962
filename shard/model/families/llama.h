// The Llama family (1, 2, 3): biases or none, tied or untied head. Turns config.json or GGUF
// metadata into a ModelDescription. Names: transformers' LlamaConfig; llama.cpp's architecture
// "llama", which Mistral's GGUF files have too.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h.
absl::StatusOr<ModelDescription> LlamaFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> LlamaFromGguf(const GgufFile& file);

}  // namespace weft::shard

// The Qwen2 family (Qwen2, Qwen2.5): Llama's forward with biases on query, key and value. Turns
// config.json or GGUF metadata into a ModelDescription. Names: transformers' Qwen2Config;
// llama.cpp's architecture "qwen2", whose rotary pairs lie as in transformers.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h; UNIMPLEMENTED for layers with a sliding window.
absl::StatusOr<ModelDescription> Qwen2FromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Qwen2FromGguf(const GgufFile& file);

}  // namespace weft::shard

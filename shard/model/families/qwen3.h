// The Qwen3 family: Llama's forward with query and key normalised by head. Turns config.json or
// GGUF metadata into a ModelDescription. Names: transformers' Qwen3Config;
// llama.cpp's architecture "qwen3", whose rotary pairs lie as in transformers.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h; UNIMPLEMENTED for layers with a sliding window.
absl::StatusOr<ModelDescription> Qwen3FromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Qwen3FromGguf(const GgufFile& file);

}  // namespace weft::shard

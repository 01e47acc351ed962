// The Qwen3-MoE family (Qwen3-30B-A3B, Qwen3-235B-A22B): Qwen3 with experts in place of the MLP.
// Turns config.json or GGUF metadata into a ModelDescription. Names: transformers' Qwen3MoeConfig;
// llama.cpp's architecture "qwen3moe".

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h, expert_keys.h.
absl::StatusOr<ModelDescription> Qwen3MoeFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Qwen3MoeFromGguf(const GgufFile& file);

}  // namespace weft::shard

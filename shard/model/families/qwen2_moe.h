// The Qwen2-MoE family (Qwen1.5-MoE, Qwen2-57B-A14B): Qwen2 with experts in place of the MLP and
// one MLP beside them that every token takes, scaled by a gate of its own. Turns config.json or
// GGUF metadata into a ModelDescription. Names: transformers' Qwen2MoeConfig; llama.cpp's
// architecture "qwen2moe".

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h, expert_keys.h.
absl::StatusOr<ModelDescription> Qwen2MoeFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Qwen2MoeFromGguf(const GgufFile& file);

}  // namespace weft::shard

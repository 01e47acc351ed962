// Falcon: 7B (one KV head and one norm, both halves side by side), 40B and later (groups of heads,
// a norm for each half), RW (ALiBi, a KV head for each query head, one half after the other).
// Called once while a model is opened; pure. Names: transformers' FalconForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> FalconFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> FalconFromGguf(const GgufFile& file);

}  // namespace weft::shard

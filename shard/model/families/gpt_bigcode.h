// SantaCoder and StarCoder: GPT-2 with one KV head for all query heads, matrices as they are
// multiplied. Called once while a model is opened; pure. Names: transformers'
// GPTBigCodeForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> GptBigcodeFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> GptBigcodeFromGguf(const GgufFile& file);

}  // namespace weft::shard

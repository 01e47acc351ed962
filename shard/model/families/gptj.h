// GPT-J: rotary positions on neighbours in a part of each head, attention and MLP side by side with
// one norm for both. Called once while a model is opened; pure. Names: transformers'
// GPTJForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> GptjFromHf(const HfConfig& config);

}  // namespace weft::shard

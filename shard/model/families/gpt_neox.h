// GPT-NeoX and Pythia: rotary positions on a part of each head, attention and MLP side by side with
// a norm each. Called once while a model is opened; pure. Names: transformers' GPTNeoXForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> GptNeoxFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> GptNeoxFromGguf(const GgufFile& file);

}  // namespace weft::shard

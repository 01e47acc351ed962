// BLOOM: no positions but ALiBi's, a norm behind the embedding, query, key and value by head.
// Called once while a model is opened; pure. Names: transformers' BloomForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

absl::StatusOr<ModelDescription> BloomFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> BloomFromGguf(const GgufFile& file);

}  // namespace weft::shard

// The DeepSeek families: V2 (V2, V2-Lite, Coder-V2) and V3 (V3, R1, Moonlight): Llama with latent
// attention, and experts from the best groups beside MLPs that every token takes. Turns config.json
// into a ModelDescription. Names: transformers' DeepseekV2Config and DeepseekV3Config.

#pragma once

#include "absl/status/statusor.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h, expert_keys.h; UNIMPLEMENTED for biases and for other ways of choosing
// experts than the family's.
absl::StatusOr<ModelDescription> DeepseekV2FromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> DeepseekV3FromHf(const HfConfig& config);

}  // namespace weft::shard

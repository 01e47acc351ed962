// Latent attention as config.json states it. Called once by a family's code while a model is
// opened; pure.

#pragma once

#include "absl/status/status.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/hf_config.h"

namespace weft::shard {

// Fills spec->latent, kv_heads and head_dim from kv_lora_rank, q_lora_rank, qk_nope_head_dim,
// qk_rope_head_dim and v_head_dim. INVALID_ARGUMENT naming the key and its range; UNIMPLEMENTED for
// fewer key than query heads. REQUIRES: spec->heads and kv_heads as the file has them.
absl::Status LatentFromHf(const HfObject& root, DecoderSpec* spec);

}  // namespace weft::shard

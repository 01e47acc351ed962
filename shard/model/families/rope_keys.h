// Rotary settings as model files state them. Called once by a family's code while a model is
// opened; pure.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/families/gguf_keys.h"
#include "shard/model/hf_config.h"

namespace weft::shard {

// UNIMPLEMENTED "<where>: <what>".
absl::Status Unsupported(absl::string_view where, absl::string_view what);

// config.json: rope_theta and rope_scaling as transformers 4 writes them, or both inside
// rope_parameters as transformers 5 does. UNIMPLEMENTED names the key of a scaling that is not
// known. REQUIRES: rope->dims.
absl::Status RopeFromHf(const HfObject& root, RopeSpec* rope);

// One such object of config.json's `root`, as families hold that have several.
absl::Status RopeFromSettings(const HfObject& root, const HfObject& settings, RopeSpec* rope);

// What DeepSeek multiplies scores by where positions are scaled and `mscale_all_dim` says so.
// REQUIRES: RopeFromHf.
absl::StatusOr<float> YarnScoreScale(const HfObject& root, const RopeSpec& rope);

// GGUF: keys "rope.*" and the tensors of divisors. REQUIRES: rope->dims.
absl::Status RopeFromGguf(const GgufKeys& keys, RopeSpec* rope);

}  // namespace weft::shard

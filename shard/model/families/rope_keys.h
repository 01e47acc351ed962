// Rotary settings as model files state them. Called once by a family's code while a model is
// opened; pure.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/gguf.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/hf_config.h"

namespace weft::shard {

// UNIMPLEMENTED "<where>: <what>".
absl::Status Unsupported(absl::string_view where, absl::string_view what);

// config.json: rope_theta and rope_scaling as transformers 4 writes them, or both inside
// rope_parameters as transformers 5 does. UNIMPLEMENTED names the key of a scaling that is not
// known.
absl::Status RopeFromHf(const HfObject& root, RopeSpec* rope);

// One such object alone, as families hold that have several.
absl::Status RopeFromSettings(const HfObject& settings, RopeSpec* rope);

// GGUF: keys "<architecture>.rope.*" and the tensor rope_freqs.weight. REQUIRES: rope->dims.
absl::Status RopeFromGguf(const GgufFile& file, const std::string& architecture, RopeSpec* rope);

}  // namespace weft::shard

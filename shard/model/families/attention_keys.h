// Sliding windows as model files state them. Called once by a family's code while a model is
// opened; pure.

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/families/gguf_keys.h"
#include "shard/model/hf_config.h"

namespace weft::shard {

// Gives the layers that are `windowed` (one entry each) a window of `tokens`, of the rotary
// settings of spec->attention_kinds[0]; the others keep what they have. A window that the context
// never exceeds is none. INVALID_ARGUMENT naming `where` for a window of 0.
absl::Status SetWindow(absl::string_view where, uint32_t tokens, const std::vector<bool>& windowed,
                       DecoderSpec* spec);

// layer_types: for each layer whether it is "sliding_attention" rather than "full_attention"; empty
// when the key is absent. INVALID_ARGUMENT for another number of entries than layers, UNIMPLEMENTED
// for another kind.
absl::StatusOr<std::vector<bool>> WindowedLayers(const HfObject& root, uint32_t layers);

// Qwen's: where use_sliding_window says so, layers from max_window_layers on have sliding_window,
// unless layer_types says for each which has.
absl::Status WindowOfLastLayers(const HfObject& root, DecoderSpec* spec);

// sliding_window, where it is not null, for all layers.
absl::Status WindowOfAllLayers(const HfObject& root, DecoderSpec* spec);
// The same of GGUF's attention.sliding_window, where 0 means none.
absl::Status WindowOfAllLayers(const GgufKeys& keys, DecoderSpec* spec);

}  // namespace weft::shard

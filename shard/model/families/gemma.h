// Gemma 2 and the text half of Gemma 3: norms before and behind both halves of a layer whose
// weights are kept less 1, a MLP gated by GELU, embeddings that are scaled, layers with a window
// between those without. Called once while a model is opened; pure. Names: transformers'
// Gemma2ForCausalLM, Gemma3ForCausalLM.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Scores of attention and logits are capped.
absl::StatusOr<ModelDescription> Gemma2FromHf(const HfConfig& config);
// Heads are normalised, and layers with a window have rotary settings of their own.
absl::StatusOr<ModelDescription> Gemma3FromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> Gemma2FromGguf(const GgufFile& file);
absl::StatusOr<ModelDescription> Gemma3FromGguf(const GgufFile& file);

}  // namespace weft::shard

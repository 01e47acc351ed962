// The gpt-oss family: Llama's forward with a logit more in every head's softmax, a window in every
// second layer, biases everywhere, and experts whose gates and ups are cut. Turns config.json or
// GGUF metadata into a ModelDescription. Names: transformers' GptOssForCausalLM; llama.cpp's
// architecture "gpt-oss".

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Errors: llama_like.h, expert_keys.h. The experts' matrices are in a float type, or, as published,
// in MXFP4 (quantization_config); UNIMPLEMENTED for other ways of packing.
absl::StatusOr<ModelDescription> GptOssFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> GptOssFromGguf(const GgufFile& file);

}  // namespace weft::shard

// The Llama family: RMSNorm, rotary positions on halves of a head, grouped-query attention, a MLP
// gated by SiLU, biases or none, tied or untied head. Turns config.json or GGUF metadata into a
// ModelDescription. Names of keys and tensors: transformers' LlamaConfig and LlamaForCausalLM;
// llama.cpp's gguf-py/gguf/constants.py for architecture "llama".

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// UNIMPLEMENTED naming the key for what this code does not have: activations other than SiLU,
// rotary scaling other than linear and llama3, experts, sliding windows, quantised safetensors.
absl::StatusOr<ModelDescription> LlamaFromHf(const HfConfig& config);
absl::StatusOr<ModelDescription> LlamaFromGguf(const GgufFile& file);

}  // namespace weft::shard

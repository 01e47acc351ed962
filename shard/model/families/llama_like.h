// The reader of every family that is built like Llama: RMSNorm, rotary positions on halves of a
// head, grouped-query attention, a MLP gated by SiLU. A family says what is its own in a LlamaLike.
// Called once while a model is opened; pure. Names: transformers' LlamaForCausalLM (and
// Qwen3ForCausalLM for the norms of heads).

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/gguf.h"
#include "shard/model/families/gguf_family.h"
#include "shard/model/families/tensor_names.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

struct LlamaLike {
  // model_type, and general.architecture of GGUF files where they say nothing else.
  const char* name;
  // The one class of config.json's `architectures`.
  const char* architecture;
  const char* gguf_name = nullptr;
  // Where config.json has no num_key_value_heads; 0: as many as query heads.
  uint32_t kv_heads_default = 0;
  // What config.json calls head_dim.
  const char* head_dim = "head_dim";
  RowOrder hf_query_key_order = RowOrder::kPlain;
  // Of GGUF files.
  RowOrder gguf_query_key_order = RowOrder::kPlain;
  GgufExperts gguf_experts = GgufExperts::kNone;
  // What safetensors files call some tensors otherwise than Llama's.
  absl::Span<const TensorName> own_hf_names = {};
  // These are the names that quantization_config means.
  bool reads_quantised = false;
  // Fills the biases from config.json and refuses keys that change the mathematics. All sizes are
  // in `spec` already, unchecked.
  absl::Status (*finish_hf)(const HfObject& root, DecoderSpec* spec) = nullptr;
};

// UNIMPLEMENTED naming the key for what this code does not have, as activations other than SiLU.
absl::StatusOr<ModelDescription> LlamaLikeFromHf(const LlamaLike& family, const HfConfig& config);
absl::StatusOr<ModelDescription> LlamaLikeFromGguf(const LlamaLike& family, const GgufFile& file);

}  // namespace weft::shard

// The reader of a family's config.json, from what the family says of itself as data: what it calls
// the sizes, what its tensors are called, and a function for all that is its own. For families that
// are less like Llama than llama_like.h. Called once while a model is opened; pure.

#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "shard/model/families/tensor_names.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Keys of config.json; of several that transformers takes for one, "new|old", the first that is
// there. Null: the family has no such key, and `finish` says what holds.
struct HfSizeKeys {
  const char* layers = "num_hidden_layers";
  const char* hidden = "hidden_size";
  const char* heads = "num_attention_heads";
  // Without the key as many as heads.
  const char* kv_heads = nullptr;
  // Without the key hidden / heads, which must divide.
  const char* head_dim = nullptr;
  // Without the key four times `hidden`.
  const char* mlp_hidden = "intermediate_size";
  const char* context_tokens = "max_position_embeddings";
  const char* norm_epsilon = "layer_norm_eps";
};

// Of GPT-2's configuration and of those that were made from it.
inline constexpr HfSizeKeys kGpt2SizeKeys = {
    .layers = "n_layer|num_hidden_layers",
    .hidden = "n_embd|hidden_size",
    .heads = "n_head|num_attention_heads",
    .mlp_hidden = "n_inner",
    .context_tokens = "n_positions|max_position_embeddings",
    .norm_epsilon = "layer_norm_epsilon"};

// A spec begins with LayerNorm with biases, as many KV heads as heads and an MLP without a gate;
// everything else as decoder_spec.h has it.
struct HfFamily {
  // model_type, and the one class of `architectures`.
  const char* name;
  const char* architecture;
  HfSizeKeys keys = {};
  // Where config.json does not say.
  float norm_epsilon_default = 1e-5f;
  bool tied_head_default = false;
  // Before those of `tensors`, where variants of a family differ.
  absl::Span<const TensorName> own_tensors = {};
  absl::Span<const TensorName> tensors;
  RowOrder query_key_order = RowOrder::kPlain;
  // Of the tensors' names; some files leave it out.
  const char* optional_prefix = "";
  // As ModelDescription::unused; the head is added when it is tied.
  absl::Span<const char* const> unused = {};
  // Fills what the keys above do not say and refuses keys that change the mathematics. All sizes
  // are in `spec` already, unchecked but for heads that divide `hidden`.
  absl::Status (*finish)(const HfObject& root, DecoderSpec* spec) = nullptr;
};

absl::StatusOr<ModelDescription> ReadHfFamily(const HfFamily& family, const HfConfig& config);

}  // namespace weft::shard

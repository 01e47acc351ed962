#include "shard/model/families/llama_like.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/gguf_family.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/rope_keys.h"
#include "shard/model/families/tensor_names.h"
#include "shard/model/families/validate.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "model.embed_tokens.weight"},
    {ParamKind::kAttentionNorm, "model.layers.*.input_layernorm.weight"},
    {ParamKind::kQuery, "model.layers.*.self_attn.q_proj.weight"},
    {ParamKind::kKey, "model.layers.*.self_attn.k_proj.weight"},
    {ParamKind::kValue, "model.layers.*.self_attn.v_proj.weight"},
    {ParamKind::kOutput, "model.layers.*.self_attn.o_proj.weight"},
    {ParamKind::kQueryBias, "model.layers.*.self_attn.q_proj.bias"},
    {ParamKind::kKeyBias, "model.layers.*.self_attn.k_proj.bias"},
    {ParamKind::kValueBias, "model.layers.*.self_attn.v_proj.bias"},
    {ParamKind::kOutputBias, "model.layers.*.self_attn.o_proj.bias"},
    {ParamKind::kQueryNorm, "model.layers.*.self_attn.q_norm.weight"},
    {ParamKind::kKeyNorm, "model.layers.*.self_attn.k_norm.weight"},
    {ParamKind::kMlpNorm, "model.layers.*.post_attention_layernorm.weight"},
    {ParamKind::kGate, "model.layers.*.mlp.gate_proj.weight"},
    {ParamKind::kUp, "model.layers.*.mlp.up_proj.weight"},
    {ParamKind::kDown, "model.layers.*.mlp.down_proj.weight"},
    {ParamKind::kGateBias, "model.layers.*.mlp.gate_proj.bias"},
    {ParamKind::kUpBias, "model.layers.*.mlp.up_proj.bias"},
    {ParamKind::kDownBias, "model.layers.*.mlp.down_proj.bias"},
    {ParamKind::kRouter, "model.layers.*.mlp.gate.weight"},
    {ParamKind::kExpertGate, "model.layers.*.mlp.experts.#.gate_proj.weight"},
    {ParamKind::kExpertUp, "model.layers.*.mlp.experts.#.up_proj.weight"},
    {ParamKind::kExpertDown, "model.layers.*.mlp.experts.#.down_proj.weight"},
    {ParamKind::kSharedGate, "model.layers.*.mlp.shared_expert.gate_proj.weight"},
    {ParamKind::kSharedUp, "model.layers.*.mlp.shared_expert.up_proj.weight"},
    {ParamKind::kSharedDown, "model.layers.*.mlp.shared_expert.down_proj.weight"},
    {ParamKind::kSharedScale, "model.layers.*.mlp.shared_expert_gate.weight"},
    {ParamKind::kFinalNorm, "model.norm.weight"},
    {ParamKind::kHead, "lm_head.weight"},
};

absl::Status RefuseUnsupported(const LlamaLike& family, const HfObject& root) {
  WEFT_ASSIGN_OR_RETURN(const std::string act, root.GetStringOr("hidden_act", "silu"));
  if (act != "silu") {
    return Unsupported(root.Where("hidden_act"),
                       absl::StrCat("\"", act, "\" is not supported; known is: silu"));
  }
  WEFT_ASSIGN_OR_RETURN(const float rotated,
                        RotaryShareFromHf(root, "partial_rotary_factor", 1.0f));
  if (rotated != 1.0f) {
    return Unsupported(root.Where("partial_rotary_factor"),
                       absl::StrCat(rotated, " is not supported; expected 1"));
  }
  return RefuseOtherModels(root, family.architecture, family.reads_quantised);
}

SpecKeys KeysOf(const LlamaLike& family, const HfObject& root) {
  const std::string scaling = root.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const absl::StatusOr<HfObject> inside = root.GetObject(scaling);
  SpecKeys keys;
  keys.layers = root.Where("num_hidden_layers");
  keys.hidden = root.Where("hidden_size");
  keys.heads = root.Where("num_attention_heads");
  keys.kv_heads = root.Where("num_key_value_heads");
  keys.head_dim = root.Where(family.head_dim);
  keys.mlp_hidden = root.Where("intermediate_size");
  keys.vocab = root.Where("vocab_size");
  keys.context_tokens = root.Where("max_position_embeddings");
  keys.norm_epsilon = root.Where("rms_norm_eps");
  keys.rope_dims = keys.head_dim;
  keys.rope_theta = (inside.ok() && inside->Has("rope_theta") ? *inside : root).Where("rope_theta");
  keys.rope_scaling = root.Where(absl::StrCat(scaling, "."));
  keys.rope_factors = absl::StrCat(keys.rope_scaling, "long_factor or short_factor");
  return keys;
}

}  // namespace

absl::StatusOr<ModelDescription> LlamaLikeFromHf(const LlamaLike& family, const HfConfig& config) {
  const HfObject root = config.root();
  WEFT_RETURN_IF_ERROR(RefuseUnsupported(family, root));
  ModelDescription out;
  DecoderSpec& spec = out.spec;
  spec.family = family.name;
  WEFT_ASSIGN_OR_RETURN(spec.layers, root.GetUint("num_hidden_layers"));
  WEFT_ASSIGN_OR_RETURN(spec.hidden, root.GetUint("hidden_size"));
  WEFT_ASSIGN_OR_RETURN(spec.heads, root.GetUint("num_attention_heads"));
  WEFT_ASSIGN_OR_RETURN(
      spec.kv_heads,
      root.GetUintOr("num_key_value_heads",
                     family.kv_heads_default != 0 ? family.kv_heads_default : spec.heads));
  if (!root.Has(family.head_dim) && spec.heads != 0 && spec.hidden % spec.heads != 0) {
    return root.Bad(family.head_dim,
                    absl::StrCat("is missing, and hidden_size ", spec.hidden,
                                 " is no multiple of num_attention_heads ", spec.heads));
  }
  WEFT_ASSIGN_OR_RETURN(spec.head_dim,
                        root.GetUintOr(family.head_dim, spec.hidden / std::max(spec.heads, 1u)));
  WEFT_ASSIGN_OR_RETURN(spec.mlp_hidden, root.GetUint("intermediate_size"));
  WEFT_ASSIGN_OR_RETURN(spec.vocab, root.GetUint("vocab_size"));
  WEFT_ASSIGN_OR_RETURN(spec.context_tokens, root.GetUint("max_position_embeddings"));
  WEFT_ASSIGN_OR_RETURN(spec.norm_epsilon, root.GetFloatOr("rms_norm_eps", 1e-6f));
  WEFT_ASSIGN_OR_RETURN(spec.tied_head, root.GetBoolOr("tie_word_embeddings", false));
  RopeSpec& rope = spec.attention_kinds[0].rope;
  rope.dims = spec.head_dim;
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &rope));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  WEFT_RETURN_IF_ERROR(family.finish_hf(root, &spec));
  WEFT_RETURN_IF_ERROR(ValidateSpec(spec, KeysOf(family, root)));
  WEFT_ASSIGN_OR_RETURN(spec.eos_ids, EosFromHf(config, spec.vocab));
  out.params = NameTensors(spec, Joined(family.own_hf_names, kTensors), family.hf_query_key_order);
  out.unused = {"*.rotary_emb.inv_freq"};
  if (spec.tied_head) out.tied_head_name = "lm_head.weight";
  return out;
}

absl::StatusOr<ModelDescription> LlamaLikeFromGguf(const LlamaLike& family, const GgufFile& file) {
  const char* const architecture = family.gguf_name != nullptr ? family.gguf_name : family.name;
  return ReadGgufFamily({.name = family.name,
                         .architecture = architecture,
                         .norm = NormKind::kRmsNorm,
                         .activation = Activation::kSilu,
                         .gated_mlp = true,
                         .experts = family.gguf_experts,
                         .query_key_order = family.gguf_query_key_order},
                        file);
}

}  // namespace weft::shard

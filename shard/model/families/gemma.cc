#include "shard/model/families/gemma.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "model.embed_tokens.weight"},
    {ParamKind::kAttentionNorm, "model.layers.*.input_layernorm.weight"},
    {ParamKind::kQuery, "model.layers.*.self_attn.q_proj.weight"},
    {ParamKind::kKey, "model.layers.*.self_attn.k_proj.weight"},
    {ParamKind::kValue, "model.layers.*.self_attn.v_proj.weight"},
    {ParamKind::kQueryNorm, "model.layers.*.self_attn.q_norm.weight"},
    {ParamKind::kKeyNorm, "model.layers.*.self_attn.k_norm.weight"},
    {ParamKind::kOutput, "model.layers.*.self_attn.o_proj.weight"},
    {ParamKind::kPostAttentionNorm, "model.layers.*.post_attention_layernorm.weight"},
    {ParamKind::kMlpNorm, "model.layers.*.pre_feedforward_layernorm.weight"},
    {ParamKind::kGate, "model.layers.*.mlp.gate_proj.weight"},
    {ParamKind::kUp, "model.layers.*.mlp.up_proj.weight"},
    {ParamKind::kDown, "model.layers.*.mlp.down_proj.weight"},
    {ParamKind::kPostMlpNorm, "model.layers.*.post_feedforward_layernorm.weight"},
    {ParamKind::kFinalNorm, "model.norm.weight"},
    {ParamKind::kHead, "lm_head.weight"},
};

constexpr const char* kUnused[] = {"*.rotary_emb.inv_freq"};

// A cap of scores or logits: null and 0 mean none.
absl::StatusOr<float> Cap(const HfObject& root, const char* key, float otherwise) {
  if (root.IsNull(key)) return 0.0f;
  WEFT_ASSIGN_OR_RETURN(const float cap, root.GetFloatOr(key, otherwise));
  if (cap >= 0 && std::isfinite(cap)) return cap;
  return root.Bad(key, absl::StrCat("must be null or a number above 0, found ", cap));
}

// Layers with a window: those that layer_types names, else all but every `pattern`-th.
absl::StatusOr<std::vector<bool>> Windowed(const HfObject& root, uint32_t layers,
                                           uint32_t pattern) {
  WEFT_ASSIGN_OR_RETURN(std::vector<bool> windowed, WindowedLayers(root, layers));
  for (uint32_t layer = static_cast<uint32_t>(windowed.size()); layer < layers; ++layer) {
    windowed.push_back((layer + 1) % pattern != 0);
  }
  return windowed;
}

// What both have in common; attention_kinds[0] has the rotary settings of layers without a window.
absl::Status FinishBoth(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->activation,
                        ActivationFromHf(root, "hidden_activation", "gelu_pytorch_tanh"));
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "attention_bias"));
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "use_bidirectional_attention"));
  spec->norm = NormKind::kRmsNorm;
  spec->norm_bias = false;
  spec->norm_weight_offset = 1.0f;
  spec->post_norms = true;
  spec->gated_mlp = true;
  spec->embedding_scale = std::sqrt(static_cast<float>(spec->hidden));
  WEFT_ASSIGN_OR_RETURN(const float scalar, root.GetFloatOr("query_pre_attn_scalar", 256.0f));
  if (!(scalar > 0 && std::isfinite(scalar))) {
    return root.Bad("query_pre_attn_scalar", absl::StrCat("must be above 0, found ", scalar));
  }
  spec->attention_scale = 1.0f / std::sqrt(scalar);
  spec->attention_kinds[0].rope.dims = spec->head_dim;
  return absl::OkStatus();
}

absl::Status Finish2(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(FinishBoth(root, spec));
  WEFT_ASSIGN_OR_RETURN(spec->attention_soft_cap, Cap(root, "attn_logit_softcapping", 50.0f));
  WEFT_ASSIGN_OR_RETURN(spec->logit_soft_cap, Cap(root, "final_logit_softcapping", 30.0f));
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &spec->attention_kinds[0].rope));
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUintOr("sliding_window", 4096));
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> windowed, Windowed(root, spec->layers, 2));
  return SetWindow(root.Where("sliding_window"), window, windowed, spec);
}

// transformers 5 writes a set of rotary settings for each kind of layer; before, layers with a
// window had a base of their own and no scaling.
absl::Status RopeOfBothKinds(const HfObject& root, const std::vector<bool>& windowed,
                             uint32_t window, DecoderSpec* spec) {
  AttentionKind full = spec->attention_kinds[0];
  AttentionKind sliding = full;
  // A window that the context never exceeds is none.
  sliding.window_tokens = window < spec->context_tokens ? window : 0;
  full.rope.theta = 1e6f;
  if (root.Has("rope_parameters")) {
    WEFT_ASSIGN_OR_RETURN(const HfObject settings, root.GetObject("rope_parameters"));
    WEFT_ASSIGN_OR_RETURN(const HfObject of_full, settings.GetObject("full_attention"));
    WEFT_ASSIGN_OR_RETURN(const HfObject of_sliding, settings.GetObject("sliding_attention"));
    WEFT_RETURN_IF_ERROR(RopeFromSettings(root, of_full, &full.rope));
    WEFT_RETURN_IF_ERROR(RopeFromSettings(root, of_sliding, &sliding.rope));
  } else {
    WEFT_RETURN_IF_ERROR(RopeFromHf(root, &full.rope));
    if (!root.Has("rope_theta")) full.rope.theta = 1e6f;
    WEFT_ASSIGN_OR_RETURN(sliding.rope.theta, root.GetFloatOr("rope_local_base_freq", 10000.0f));
  }
  spec->attention_kinds = {full, sliding};
  spec->layer_attention.assign(windowed.begin(), windowed.end());
  return absl::OkStatus();
}

absl::Status Finish3(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(FinishBoth(root, spec));
  WEFT_ASSIGN_OR_RETURN(spec->attention_soft_cap, Cap(root, "attn_logit_softcapping", 0.0f));
  WEFT_ASSIGN_OR_RETURN(spec->logit_soft_cap, Cap(root, "final_logit_softcapping", 0.0f));
  spec->head_norms = true;
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUintOr("sliding_window", 4096));
  WEFT_ASSIGN_OR_RETURN(const uint32_t pattern, root.GetUintOr("sliding_window_pattern", 6));
  if (pattern == 0) return root.Bad("sliding_window_pattern", "must be at least 1, found 0");
  if (window == 0) return root.Bad("sliding_window", "must be at least 1 token, found 0");
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> windowed, Windowed(root, spec->layers, pattern));
  return RopeOfBothKinds(root, windowed, window, spec);
}

constexpr HfFamily Family(const char* name, const char* architecture,
                          absl::Status (*finish)(const HfObject&, DecoderSpec*)) {
  return {.name = name,
          .architecture = architecture,
          .keys = {.kv_heads = "num_key_value_heads",
                   .head_dim = "head_dim",
                   .norm_epsilon = "rms_norm_eps"},
          .norm_epsilon_default = 1e-6f,
          .tied_head_default = true,
          .tensors = kTensors,
          .unused = kUnused,
          .finish = finish};
}

}  // namespace

absl::StatusOr<ModelDescription> Gemma2FromHf(const HfConfig& config) {
  return ReadHfFamily(Family("gemma2", "Gemma2ForCausalLM", Finish2), config);
}

absl::StatusOr<ModelDescription> Gemma3FromHf(const HfConfig& config) {
  return ReadHfFamily(Family("gemma3_text", "Gemma3ForCausalLM", Finish3), config);
}

}  // namespace weft::shard

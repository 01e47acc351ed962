#include "shard/model/families/deepseek.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/expert_keys.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/latent_keys.h"
#include "shard/model/families/llama_like.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    // The first is left out where queries are made of the hidden state.
    {ParamKind::kQuery, "model.layers.*.self_attn.q_b_proj.weight"},
    {ParamKind::kQuery, "model.layers.*.self_attn.q_proj.weight"},
    {ParamKind::kQueryDown, "model.layers.*.self_attn.q_a_proj.weight"},
    {ParamKind::kQueryLatentNorm, "model.layers.*.self_attn.q_a_layernorm.weight"},
    {ParamKind::kLatent, "model.layers.*.self_attn.kv_a_proj_with_mqa.weight"},
    {ParamKind::kLatentNorm, "model.layers.*.self_attn.kv_a_layernorm.weight"},
    {ParamKind::kKeyUp, "model.layers.*.self_attn.kv_b_proj.weight", Fusion::kKeyUpValueUp},
    {ParamKind::kChoiceBias, "model.layers.*.mlp.gate.e_score_correction_bias"},
    {ParamKind::kSharedGate, "model.layers.*.mlp.shared_experts.gate_proj.weight"},
    {ParamKind::kSharedUp, "model.layers.*.mlp.shared_experts.up_proj.weight"},
    {ParamKind::kSharedDown, "model.layers.*.mlp.shared_experts.down_proj.weight"},
};

constexpr ExpertKeys kExpertKeys = {.count = "n_routed_experts", .renormalised = nullptr};

// Of DeepseekV3Config, where config.json has no such key.
constexpr uint32_t kPlainLayersDefault = 3;
constexpr float kScalingDefault = 2.5f;

absl::Status Latents(const HfObject& root, DecoderSpec* spec) {
  for (const char* const key : {"attention_bias", "mlp_bias"}) {
    WEFT_RETURN_IF_ERROR(ExpectFalse(root, key));
  }
  WEFT_RETURN_IF_ERROR(LatentFromHf(root, spec));
  WEFT_ASSIGN_OR_RETURN(const float scale, YarnScoreScale(root, spec->attention_kinds[0].rope));
  spec->attention_scale = scale / std::sqrt(static_cast<float>(spec->query_dim()));
  return absl::OkStatus();
}

absl::Status Experts(const HfObject& root, uint32_t plain_default, float scaling_default,
                     DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(ExpertsFromHf(root, kExpertKeys, spec));
  WEFT_RETURN_IF_ERROR(SharedExpertsFromHf(root, "n_shared_experts", spec));
  WEFT_RETURN_IF_ERROR(FirstLayersPlain(root, "first_k_dense_replace", plain_default, spec));
  WEFT_ASSIGN_OR_RETURN(const uint32_t every, root.GetUintOr("moe_layer_freq", 1));
  if (every != 1) {
    return Unsupported(root.Where("moe_layer_freq"),
                       absl::StrCat(every, " is not supported; expected 1"));
  }
  ExpertsSpec& experts = spec->experts;
  WEFT_ASSIGN_OR_RETURN(experts.weight_scale,
                        root.GetFloatOr("routed_scaling_factor", scaling_default));
  if (experts.weight_scale > 0 && std::isfinite(experts.weight_scale)) return absl::OkStatus();
  return root.Bad("routed_scaling_factor", "must be a number above 0");
}

absl::Status FinishV2(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(Latents(root, spec));
  WEFT_RETURN_IF_ERROR(ExpectText(root, "scoring_func", "softmax"));
  // transformers does not renormalise; DeepSeek's own code does, and leaves out the factor then.
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "norm_topk_prob"));
  WEFT_RETURN_IF_ERROR(Experts(root, 0, 1.0f, spec));
  spec->experts.renormalised = false;
  WEFT_ASSIGN_OR_RETURN(const std::string method, root.GetStringOr("topk_method", "greedy"));
  if (method == "greedy") return absl::OkStatus();
  if (method == "group_limited_greedy") return ExpertGroupsFromHf(root, spec);
  return Unsupported(root.Where("topk_method"),
                     absl::StrCat("\"", method,
                                  "\" is not supported; known are: greedy, "
                                  "group_limited_greedy"));
}

absl::Status FinishV3(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(Latents(root, spec));
  WEFT_RETURN_IF_ERROR(ExpectText(root, "scoring_func", "sigmoid"));
  WEFT_RETURN_IF_ERROR(ExpectText(root, "topk_method", "noaux_tc"));
  WEFT_RETURN_IF_ERROR(Experts(root, kPlainLayersDefault, kScalingDefault, spec));
  WEFT_ASSIGN_OR_RETURN(spec->experts.renormalised, root.GetBoolOr("norm_topk_prob", true));
  spec->experts.score = ExpertScore::kSigmoid;
  spec->experts.choice_bias = true;
  spec->experts.group_best = 2;
  return ExpertGroupsFromHf(root, spec);
}

absl::StatusOr<ModelDescription> Read(LlamaLike family, const HfConfig& config) {
  const HfObject root = config.root();
  family.head_dim = "qk_rope_head_dim";
  family.own_hf_names = kTensors;
  if (!root.Has("q_lora_rank")) family.own_hf_names.remove_prefix(1);
  WEFT_ASSIGN_OR_RETURN(const bool pairs, root.GetBoolOr("rope_interleave", true));
  if (pairs) family.hf_query_key_order = RowOrder::kInterleavedRotary;
  WEFT_ASSIGN_OR_RETURN(ModelDescription model, LlamaLikeFromHf(family, config));
  // What guesses several tokens at once lies behind the last layer.
  model.unused.push_back(absl::StrCat("model.layers.", model.spec.layers, ".*"));
  return model;
}

}  // namespace

absl::StatusOr<ModelDescription> DeepseekV2FromHf(const HfConfig& config) {
  return Read(
      {.name = "deepseek_v2", .architecture = "DeepseekV2ForCausalLM", .finish_hf = FinishV2},
      config);
}

absl::StatusOr<ModelDescription> DeepseekV3FromHf(const HfConfig& config) {
  return Read(
      {.name = "deepseek_v3", .architecture = "DeepseekV3ForCausalLM", .finish_hf = FinishV3},
      config);
}

}  // namespace weft::shard

#include "shard/model/families/phi.h"

#include "common/status.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "model.embed_tokens.weight"},
    {ParamKind::kAttentionNorm, "model.layers.*.input_layernorm.weight"},
    {ParamKind::kAttentionNormBias, "model.layers.*.input_layernorm.bias"},
    {ParamKind::kQuery, "model.layers.*.self_attn.q_proj.weight"},
    {ParamKind::kQueryBias, "model.layers.*.self_attn.q_proj.bias"},
    {ParamKind::kKey, "model.layers.*.self_attn.k_proj.weight"},
    {ParamKind::kKeyBias, "model.layers.*.self_attn.k_proj.bias"},
    {ParamKind::kValue, "model.layers.*.self_attn.v_proj.weight"},
    {ParamKind::kValueBias, "model.layers.*.self_attn.v_proj.bias"},
    {ParamKind::kOutput, "model.layers.*.self_attn.dense.weight"},
    {ParamKind::kOutputBias, "model.layers.*.self_attn.dense.bias"},
    {ParamKind::kUp, "model.layers.*.mlp.fc1.weight"},
    {ParamKind::kUpBias, "model.layers.*.mlp.fc1.bias"},
    {ParamKind::kDown, "model.layers.*.mlp.fc2.weight"},
    {ParamKind::kDownBias, "model.layers.*.mlp.fc2.bias"},
    {ParamKind::kFinalNorm, "model.final_layernorm.weight"},
    {ParamKind::kFinalNormBias, "model.final_layernorm.bias"},
    {ParamKind::kHead, "lm_head.weight"},
    {ParamKind::kHeadBias, "lm_head.bias"},
};

constexpr const char* kUnused[] = {"*.rotary_emb.inv_freq"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "qk_layernorm"));
  WEFT_ASSIGN_OR_RETURN(spec->activation, ActivationFromHf(root, "hidden_act", "gelu_new"));
  WEFT_ASSIGN_OR_RETURN(spec->attention_kinds[0].rope.dims,
                        RotaryDimsFromHf(root, "partial_rotary_factor", 0.5f, spec->head_dim));
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &spec->attention_kinds[0].rope));
  spec->parallel_residual = spec->shared_norm = true;
  spec->qkv_bias = spec->output_bias = spec->mlp_bias = spec->head_bias = true;
  return absl::OkStatus();
}

constexpr HfFamily kPhi = {.name = "phi",
                           .architecture = "PhiForCausalLM",
                           .keys = {.kv_heads = "num_key_value_heads"},
                           .tensors = kTensors,
                           .unused = kUnused,
                           .finish = Finish};

}  // namespace

absl::StatusOr<ModelDescription> PhiFromHf(const HfConfig& config) {
  return ReadHfFamily(kPhi, config);
}

}  // namespace weft::shard

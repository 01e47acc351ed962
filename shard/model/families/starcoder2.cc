#include "shard/model/families/starcoder2.h"

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/gguf_family.h"
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
    {ParamKind::kOutput, "model.layers.*.self_attn.o_proj.weight"},
    {ParamKind::kOutputBias, "model.layers.*.self_attn.o_proj.bias"},
    {ParamKind::kMlpNorm, "model.layers.*.post_attention_layernorm.weight"},
    {ParamKind::kMlpNormBias, "model.layers.*.post_attention_layernorm.bias"},
    {ParamKind::kUp, "model.layers.*.mlp.c_fc.weight"},
    {ParamKind::kUpBias, "model.layers.*.mlp.c_fc.bias"},
    {ParamKind::kDown, "model.layers.*.mlp.c_proj.weight"},
    {ParamKind::kDownBias, "model.layers.*.mlp.c_proj.bias"},
    {ParamKind::kFinalNorm, "model.norm.weight"},
    {ParamKind::kFinalNormBias, "model.norm.bias"},
    {ParamKind::kHead, "lm_head.weight"},
};

constexpr const char* kUnused[] = {"*.rotary_emb.inv_freq"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->activation,
                        ActivationFromHf(root, "hidden_act", "gelu_pytorch_tanh"));
  WEFT_ASSIGN_OR_RETURN(const bool bias, root.GetBoolOr("use_bias", true));
  spec->qkv_bias = spec->output_bias = spec->mlp_bias = bias;
  spec->attention_kinds[0].rope.dims = spec->head_dim;
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &spec->attention_kinds[0].rope));
  return WindowOfAllLayers(root, spec);
}

constexpr HfFamily kStarcoder2 = {
    .name = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .keys = {.kv_heads = "num_key_value_heads", .norm_epsilon = "norm_epsilon"},
    .tied_head_default = true,
    .tensors = kTensors,
    .unused = kUnused,
    .finish = Finish};

constexpr GgufFamily kStarcoder2Gguf = {.name = "starcoder2", .architecture = "starcoder2"};

}  // namespace

absl::StatusOr<ModelDescription> Starcoder2FromHf(const HfConfig& config) {
  return ReadHfFamily(kStarcoder2, config);
}

absl::StatusOr<ModelDescription> Starcoder2FromGguf(const GgufFile& file) {
  return ReadGgufFamily(kStarcoder2Gguf, file);
}

}  // namespace weft::shard

#include "shard/model/families/gpt_neox.h"

#include "common/status.h"
#include "shard/model/families/gguf_family.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "gpt_neox.embed_in.weight"},
    {ParamKind::kAttentionNorm, "gpt_neox.layers.*.input_layernorm.weight"},
    {ParamKind::kAttentionNormBias, "gpt_neox.layers.*.input_layernorm.bias"},
    {ParamKind::kQuery, "gpt_neox.layers.*.attention.query_key_value.weight", Fusion::kByKvHead},
    {ParamKind::kQueryBias, "gpt_neox.layers.*.attention.query_key_value.bias", Fusion::kByKvHead},
    {ParamKind::kOutput, "gpt_neox.layers.*.attention.dense.weight"},
    {ParamKind::kOutputBias, "gpt_neox.layers.*.attention.dense.bias"},
    {ParamKind::kMlpNorm, "gpt_neox.layers.*.post_attention_layernorm.weight"},
    {ParamKind::kMlpNormBias, "gpt_neox.layers.*.post_attention_layernorm.bias"},
    {ParamKind::kUp, "gpt_neox.layers.*.mlp.dense_h_to_4h.weight"},
    {ParamKind::kUpBias, "gpt_neox.layers.*.mlp.dense_h_to_4h.bias"},
    {ParamKind::kDown, "gpt_neox.layers.*.mlp.dense_4h_to_h.weight"},
    {ParamKind::kDownBias, "gpt_neox.layers.*.mlp.dense_4h_to_h.bias"},
    {ParamKind::kFinalNorm, "gpt_neox.final_layer_norm.weight"},
    {ParamKind::kFinalNormBias, "gpt_neox.final_layer_norm.bias"},
    {ParamKind::kHead, "embed_out.weight"},
};

// Causal masks and frequencies, which old files hold.
constexpr const char* kUnused[] = {"*.attention.bias", "*.attention.masked_bias",
                                   "*.rotary_emb.inv_freq"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->activation, ActivationFromHf(root, "hidden_act", "gelu"));
  WEFT_ASSIGN_OR_RETURN(spec->parallel_residual, root.GetBoolOr("use_parallel_residual", true));
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("attention_bias", true));
  spec->output_bias = spec->qkv_bias;
  spec->mlp_bias = true;
  WEFT_ASSIGN_OR_RETURN(spec->attention_kinds[0].rope.dims,
                        RotaryDimsFromHf(root, "rotary_pct", 0.25f, spec->head_dim));
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &spec->attention_kinds[0].rope));
  if (root.Has("rotary_emb_base") && !root.Has("rope_parameters")) {
    WEFT_ASSIGN_OR_RETURN(spec->attention_kinds[0].rope.theta, root.GetFloat("rotary_emb_base"));
  }
  return absl::OkStatus();
}

constexpr HfFamily kGptNeox = {.name = "gpt_neox",
                               .architecture = "GPTNeoXForCausalLM",
                               .tensors = kTensors,
                               .unused = kUnused,
                               .finish = Finish};

absl::Status FinishGguf(const GgufKeys& keys, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->parallel_residual, keys.BoolOr("use_parallel_residual", true));
  return absl::OkStatus();
}

// The file does not say which GELU: this is the one of Pythia and of most others.
constexpr GgufFamily kGptNeoxGguf = {.name = "gpt_neox",
                                     .architecture = "gptneox",
                                     .activation = Activation::kGeluErf,
                                     .own_tensors = kGgufFusedQkv,
                                     .finish = FinishGguf};

}  // namespace

absl::StatusOr<ModelDescription> GptNeoxFromHf(const HfConfig& config) {
  return ReadHfFamily(kGptNeox, config);
}

absl::StatusOr<ModelDescription> GptNeoxFromGguf(const GgufFile& file) {
  return ReadGgufFamily(kGptNeoxGguf, file);
}

}  // namespace weft::shard

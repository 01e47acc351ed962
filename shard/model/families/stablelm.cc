#include "shard/model/families/stablelm.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"
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
    {ParamKind::kMlpNorm, "model.layers.*.post_attention_layernorm.weight"},
    {ParamKind::kMlpNormBias, "model.layers.*.post_attention_layernorm.bias"},
    {ParamKind::kGate, "model.layers.*.mlp.gate_proj.weight"},
    {ParamKind::kUp, "model.layers.*.mlp.up_proj.weight"},
    {ParamKind::kDown, "model.layers.*.mlp.down_proj.weight"},
    {ParamKind::kFinalNorm, "model.norm.weight"},
    {ParamKind::kFinalNormBias, "model.norm.bias"},
    {ParamKind::kHead, "lm_head.weight"},
};

constexpr const char* kUnused[] = {"*.rotary_emb.inv_freq"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  // A LayerNorm for each head with weights of its own; the decoder's norms of heads are RMSNorms
  // that all heads share.
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "qk_layernorm"));
  spec->gated_mlp = true;
  WEFT_ASSIGN_OR_RETURN(spec->activation, ActivationFromHf(root, "hidden_act", "silu"));
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("use_qkv_bias", false));
  WEFT_ASSIGN_OR_RETURN(spec->parallel_residual, root.GetBoolOr("use_parallel_residual", false));
  spec->shared_norm = spec->parallel_residual;
  RopeSpec& rope = spec->attention_kinds[0].rope;
  WEFT_ASSIGN_OR_RETURN(rope.dims,
                        RotaryDimsFromHf(root, "partial_rotary_factor", 0.25f, spec->head_dim));
  return RopeFromHf(root, &rope);
}

constexpr HfFamily kStablelm = {.name = "stablelm",
                                .architecture = "StableLmForCausalLM",
                                .keys = {.kv_heads = "num_key_value_heads"},
                                .tensors = kTensors,
                                .unused = kUnused,
                                .finish = Finish};

absl::Status FinishGguf(const GgufKeys& keys, DecoderSpec* spec) {
  const GgufFile& file = keys.file();
  if (spec->head_norms) {
    return Unsupported(absl::StrCat(file.path(), ": tensor blk.0.attn_q_norm.weight"),
                       "qk_layernorm, norms that each head has of its own, is not supported");
  }
  // Not use_parallel_residual: the converter writes true where config.json has no such key, as in
  // those of 3B models, whose halves follow each other. Like llama.cpp, go by the second norm.
  spec->parallel_residual = file.FindTensor("blk.0.ffn_norm.weight") == nullptr;
  spec->shared_norm = spec->parallel_residual;
  return absl::OkStatus();
}

constexpr GgufFamily kStablelmGguf = {.name = "stablelm",
                                      .architecture = "stablelm",
                                      .activation = Activation::kSilu,
                                      .gated_mlp = true,
                                      .finish = FinishGguf};

}  // namespace

absl::StatusOr<ModelDescription> StablelmFromHf(const HfConfig& config) {
  return ReadHfFamily(kStablelm, config);
}

absl::StatusOr<ModelDescription> StablelmFromGguf(const GgufFile& file) {
  return ReadGgufFamily(kStablelmGguf, file);
}

}  // namespace weft::shard

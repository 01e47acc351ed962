#include "shard/model/families/phi3.h"

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
    {ParamKind::kQuery, "model.layers.*.self_attn.qkv_proj.weight", Fusion::kQueryKeyValue},
    {ParamKind::kOutput, "model.layers.*.self_attn.o_proj.weight"},
    {ParamKind::kMlpNorm, "model.layers.*.post_attention_layernorm.weight"},
    {ParamKind::kGate, "model.layers.*.mlp.gate_up_proj.weight", Fusion::kGateUp},
    {ParamKind::kDown, "model.layers.*.mlp.down_proj.weight"},
    {ParamKind::kFinalNorm, "model.norm.weight"},
    {ParamKind::kHead, "lm_head.weight"},
};

constexpr const char* kUnused[] = {"*.rotary_emb.inv_freq"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->activation, ActivationFromHf(root, "hidden_act", "silu"));
  spec->norm = NormKind::kRmsNorm;
  spec->norm_bias = false;
  spec->gated_mlp = true;
  WEFT_ASSIGN_OR_RETURN(spec->attention_kinds[0].rope.dims,
                        RotaryDimsFromHf(root, "partial_rotary_factor", 1.0f, spec->head_dim));
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &spec->attention_kinds[0].rope));
  return WindowOfAllLayers(root, spec);
}

constexpr HfFamily kPhi3 = {
    .name = "phi3",
    .architecture = "Phi3ForCausalLM",
    .keys = {.kv_heads = "num_key_value_heads", .norm_epsilon = "rms_norm_eps"},
    .tensors = kTensors,
    .unused = kUnused,
    .finish = Finish};

constexpr TensorName kGgufTensors[] = {
    {ParamKind::kQuery, "blk.*.attn_qkv.weight", Fusion::kQueryKeyValue},
    {ParamKind::kGate, "blk.*.ffn_up.weight", Fusion::kGateUp},
};

absl::Status FinishGguf(const GgufKeys& keys, DecoderSpec* spec) {
  return WindowOfAllLayers(keys, spec);
}

constexpr GgufFamily kPhi3Gguf = {.name = "phi3",
                                  .architecture = "phi3",
                                  .norm = NormKind::kRmsNorm,
                                  .activation = Activation::kSilu,
                                  .gated_mlp = true,
                                  .reads_window = true,
                                  .own_tensors = kGgufTensors,
                                  .finish = FinishGguf};

}  // namespace

absl::StatusOr<ModelDescription> Phi3FromHf(const HfConfig& config) {
  return ReadHfFamily(kPhi3, config);
}

absl::StatusOr<ModelDescription> Phi3FromGguf(const GgufFile& file) {
  return ReadGgufFamily(kPhi3Gguf, file);
}

}  // namespace weft::shard

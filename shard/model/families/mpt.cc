#include "shard/model/families/mpt.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "transformer.wte.weight"},
    {ParamKind::kAttentionNorm, "transformer.blocks.*.norm_1.weight"},
    {ParamKind::kQuery, "transformer.blocks.*.attn.Wqkv.weight", Fusion::kQueryKeyValue},
    {ParamKind::kOutput, "transformer.blocks.*.attn.out_proj.weight"},
    {ParamKind::kMlpNorm, "transformer.blocks.*.norm_2.weight"},
    {ParamKind::kUp, "transformer.blocks.*.ffn.up_proj.weight"},
    {ParamKind::kDown, "transformer.blocks.*.ffn.down_proj.weight"},
    {ParamKind::kFinalNorm, "transformer.norm_f.weight"},
    {ParamKind::kHead, "lm_head.weight"},
};

// What attn_config says, with MptAttentionConfig's defaults.
absl::Status FinishAttention(const HfObject& root, DecoderSpec* spec) {
  if (!root.Has("attn_config")) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const HfObject attention, root.GetObject("attn_config"));
  WEFT_RETURN_IF_ERROR(ExpectTrue(attention, "alibi"));
  WEFT_RETURN_IF_ERROR(ExpectFalse(attention, "qk_ln"));
  WEFT_RETURN_IF_ERROR(ExpectFalse(attention, "prefix_lm"));
  WEFT_RETURN_IF_ERROR(ExpectFalse(attention, "attn_uses_sequence_id"));
  WEFT_ASSIGN_OR_RETURN(spec->qkv_clip, attention.GetFloatOr("clip_qkv", 0.0f));
  if (!(spec->qkv_clip >= 0 && std::isfinite(spec->qkv_clip))) {
    return attention.Bad("clip_qkv", "must be null or a number above 0");
  }
  WEFT_ASSIGN_OR_RETURN(spec->alibi_bias_max, attention.GetFloatOr("alibi_bias_max", 8.0f));
  if (!(spec->alibi_bias_max > 0 && spec->alibi_bias_max <= 64)) {
    return attention.Bad("alibi_bias_max", absl::StrCat("must be above 0 and at most 64, found ",
                                                        spec->alibi_bias_max));
  }
  WEFT_ASSIGN_OR_RETURN(spec->attention_scale,
                        attention.GetFloatOr("softmax_scale", spec->attention_scale));
  WEFT_ASSIGN_OR_RETURN(const std::string type,
                        attention.GetStringOr("attn_type", "multihead_attention"));
  if (type == "multihead_attention") return absl::OkStatus();
  return Unsupported(attention.Where("attn_type"), absl::StrCat("\"", type,
                                                                "\" is not supported; known is: "
                                                                "multihead_attention"));
}

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(ExpectTrue(root, "no_bias"));
  if (root.Has("logit_scale")) {
    return Unsupported(root.Where("logit_scale"), "is not supported; expected null");
  }
  // transformers' class has four whatever the key says.
  WEFT_ASSIGN_OR_RETURN(const uint32_t ratio, root.GetUintOr("expansion_ratio", 4));
  if (ratio != 4) {
    return Unsupported(root.Where("expansion_ratio"),
                       absl::StrCat(ratio, " is not supported; expected 4"));
  }
  spec->norm_bias = false;
  spec->activation = Activation::kGeluErf;
  spec->position = PositionKind::kAlibi;
  return FinishAttention(root, spec);
}

constexpr HfFamily kMpt = {.name = "mpt",
                           .architecture = "MptForCausalLM",
                           .keys = {.layers = "n_layers",
                                    .hidden = "d_model",
                                    .heads = "n_heads",
                                    .mlp_hidden = nullptr,
                                    .context_tokens = "max_seq_len",
                                    .norm_epsilon = "layer_norm_epsilon"},
                           .tied_head_default = true,
                           .tensors = kTensors,
                           .finish = Finish};

}  // namespace

absl::StatusOr<ModelDescription> MptFromHf(const HfConfig& config) {
  return ReadHfFamily(kMpt, config);
}

}  // namespace weft::shard

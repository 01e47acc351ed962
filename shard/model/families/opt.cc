#include "shard/model/families/opt.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "model.decoder.embed_tokens.weight"},
    {ParamKind::kProjectIn, "model.decoder.project_in.weight"},
    {ParamKind::kProjectOut, "model.decoder.project_out.weight"},
    {ParamKind::kPositionEmbedding, "model.decoder.embed_positions.weight"},
    {ParamKind::kAttentionNorm, "model.decoder.layers.*.self_attn_layer_norm.weight"},
    {ParamKind::kAttentionNormBias, "model.decoder.layers.*.self_attn_layer_norm.bias"},
    {ParamKind::kQuery, "model.decoder.layers.*.self_attn.q_proj.weight"},
    {ParamKind::kQueryBias, "model.decoder.layers.*.self_attn.q_proj.bias"},
    {ParamKind::kKey, "model.decoder.layers.*.self_attn.k_proj.weight"},
    {ParamKind::kKeyBias, "model.decoder.layers.*.self_attn.k_proj.bias"},
    {ParamKind::kValue, "model.decoder.layers.*.self_attn.v_proj.weight"},
    {ParamKind::kValueBias, "model.decoder.layers.*.self_attn.v_proj.bias"},
    {ParamKind::kOutput, "model.decoder.layers.*.self_attn.out_proj.weight"},
    {ParamKind::kOutputBias, "model.decoder.layers.*.self_attn.out_proj.bias"},
    {ParamKind::kMlpNorm, "model.decoder.layers.*.final_layer_norm.weight"},
    {ParamKind::kMlpNormBias, "model.decoder.layers.*.final_layer_norm.bias"},
    {ParamKind::kUp, "model.decoder.layers.*.fc1.weight"},
    {ParamKind::kUpBias, "model.decoder.layers.*.fc1.bias"},
    {ParamKind::kDown, "model.decoder.layers.*.fc2.weight"},
    {ParamKind::kDownBias, "model.decoder.layers.*.fc2.bias"},
    {ParamKind::kFinalNorm, "model.decoder.final_layer_norm.weight"},
    {ParamKind::kFinalNormBias, "model.decoder.final_layer_norm.bias"},
    {ParamKind::kHead, "lm_head.weight"},
};

// The table has two rows that no position uses.
constexpr uint32_t kPositionOffset = 2;

// The 350M model alone normalises behind its sums, and has no norm in front of its head.
absl::Status FinishNorms(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(ExpectTrue(root, "layer_norm_elementwise_affine"));
  WEFT_ASSIGN_OR_RETURN(const bool before, root.GetBoolOr("do_layer_norm_before", true));
  WEFT_ASSIGN_OR_RETURN(const bool removed, root.GetBoolOr("_remove_final_layer_norm", false));
  spec->residual_norms = !before;
  spec->final_norm = before && !removed;
  return absl::OkStatus();
}

// It alone embeds in another width, too.
absl::Status FinishEmbedding(const HfObject& root, DecoderSpec* spec) {
  constexpr char kKey[] = "word_embed_proj_dim";
  WEFT_ASSIGN_OR_RETURN(const uint32_t embedded, root.GetUintOr(kKey, spec->hidden));
  if (embedded == 0 || embedded > kHiddenMax) {
    return root.Bad(kKey, absl::StrCat("must be from 1 to ", kHiddenMax, ", found ", embedded));
  }
  if (embedded != spec->hidden) spec->embedding_dim = embedded;
  return absl::OkStatus();
}

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(FinishNorms(root, spec));
  WEFT_RETURN_IF_ERROR(FinishEmbedding(root, spec));
  WEFT_ASSIGN_OR_RETURN(spec->activation, ActivationFromHf(root, "activation_function", "relu"));
  spec->position = PositionKind::kLearned;
  spec->position_offset = kPositionOffset;
  spec->position_rows = spec->context_tokens + kPositionOffset;
  WEFT_ASSIGN_OR_RETURN(const bool bias, root.GetBoolOr("enable_bias", true));
  spec->qkv_bias = spec->output_bias = spec->mlp_bias = bias;
  return absl::OkStatus();
}

constexpr HfFamily kOpt = {.name = "opt",
                           .architecture = "OPTForCausalLM",
                           .keys = {.mlp_hidden = "ffn_dim", .norm_epsilon = nullptr},
                           .tied_head_default = true,
                           .tensors = kTensors,
                           .optional_prefix = "model.",
                           .finish = Finish};

}  // namespace

absl::StatusOr<ModelDescription> OptFromHf(const HfConfig& config) {
  return ReadHfFamily(kOpt, config);
}

}  // namespace weft::shard

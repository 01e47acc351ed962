#include "shard/model/families/falcon.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/gguf_family.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

// A norm for each half of a layer, side by side: 40B and 180B. Where one feeds both, it is the
// first of kTensors.
constexpr TensorName kTwoNorms[] = {
    {ParamKind::kAttentionNorm, "transformer.h.*.ln_attn.weight"},
    {ParamKind::kAttentionNormBias, "transformer.h.*.ln_attn.bias"},
    {ParamKind::kMlpNorm, "transformer.h.*.ln_mlp.weight"},
    {ParamKind::kMlpNormBias, "transformer.h.*.ln_mlp.bias"},
};
constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "transformer.word_embeddings.weight"},
    {ParamKind::kAttentionNorm, "transformer.h.*.input_layernorm.weight"},
    {ParamKind::kAttentionNormBias, "transformer.h.*.input_layernorm.bias"},
    {ParamKind::kMlpNorm, "transformer.h.*.post_attention_layernorm.weight"},
    {ParamKind::kMlpNormBias, "transformer.h.*.post_attention_layernorm.bias"},
    {ParamKind::kQuery, "transformer.h.*.self_attention.query_key_value.weight", Fusion::kByKvHead},
    {ParamKind::kQueryBias, "transformer.h.*.self_attention.query_key_value.bias",
     Fusion::kByKvHead},
    {ParamKind::kOutput, "transformer.h.*.self_attention.dense.weight"},
    {ParamKind::kOutputBias, "transformer.h.*.self_attention.dense.bias"},
    {ParamKind::kUp, "transformer.h.*.mlp.dense_h_to_4h.weight"},
    {ParamKind::kUpBias, "transformer.h.*.mlp.dense_h_to_4h.bias"},
    {ParamKind::kDown, "transformer.h.*.mlp.dense_4h_to_h.weight"},
    {ParamKind::kDownBias, "transformer.h.*.mlp.dense_4h_to_h.bias"},
    {ParamKind::kFinalNorm, "transformer.ln_f.weight"},
    {ParamKind::kFinalNormBias, "transformer.ln_f.bias"},
    {ParamKind::kHead, "lm_head.weight"},
};

constexpr const char* kUnused[] = {"*.rotary_emb.inv_freq"};

// Of 7B and 40B, which say it nowhere.
constexpr uint32_t kContextDefault = 2048;

// RW's positions, in place of rotary ones. The sum of score and bias is scaled, so the bias is too.
void AddAlibi(DecoderSpec* spec) {
  spec->position = PositionKind::kAlibi;
  spec->alibi_scale = 1.0f / std::sqrt(static_cast<float>(spec->head_dim));
}

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->activation, ActivationFromHf(root, "activation", "gelu"));
  WEFT_ASSIGN_OR_RETURN(spec->context_tokens,
                        root.GetUintOr("max_position_embeddings", kContextDefault));
  WEFT_ASSIGN_OR_RETURN(const bool bias, root.GetBoolOr("bias", false));
  spec->qkv_bias = spec->output_bias = spec->mlp_bias = bias;
  WEFT_ASSIGN_OR_RETURN(const bool groups, root.GetBoolOr("new_decoder_architecture", false));
  WEFT_ASSIGN_OR_RETURN(const bool one_kv_head, root.GetBoolOr("multi_query", true));
  WEFT_ASSIGN_OR_RETURN(const bool parallel, root.GetBoolOr("parallel_attn", true));
  spec->parallel_residual = groups || parallel;
  if (groups) {
    WEFT_ASSIGN_OR_RETURN(spec->kv_heads, root.GetUintOr("num_kv_heads", spec->heads));
    WEFT_ASSIGN_OR_RETURN(const uint32_t norms, root.GetUintOr("num_ln_in_parallel_attn", 2));
    spec->shared_norm = norms != 2;
  } else {
    if (one_kv_head && !parallel) {
      return Unsupported(root.Where("parallel_attn"),
                         "false is not supported with multi_query; expected true");
    }
    spec->kv_heads = one_kv_head ? 1 : spec->heads;
    spec->shared_norm = parallel;
  }
  WEFT_ASSIGN_OR_RETURN(const bool alibi, root.GetBoolOr("alibi", false));
  if (alibi) {
    AddAlibi(spec);
    return absl::OkStatus();
  }
  spec->attention_kinds[0].rope.dims = spec->head_dim;
  return RopeFromHf(root, &spec->attention_kinds[0].rope);
}

constexpr HfFamily Family(absl::Span<const TensorName> own_tensors) {
  return {.name = "falcon",
          .architecture = "FalconForCausalLM",
          .keys = {.layers = "num_hidden_layers|n_layer",
                   .heads = "num_attention_heads|n_head",
                   .mlp_hidden = "ffn_hidden_size",
                   .context_tokens = nullptr,
                   .norm_epsilon = "layer_norm_epsilon"},
          .tied_head_default = true,
          .own_tensors = own_tensors,
          .tensors = kTensors,
          .unused = kUnused,
          .finish = Finish};
}

// As kTwoNorms; with one norm that is "attn_norm".
constexpr TensorName kGgufTwoNorms[] = {
    {ParamKind::kQuery, "blk.*.attn_qkv.weight", Fusion::kQueryKeyValue},
    {ParamKind::kAttentionNorm, "blk.*.attn_norm_2.weight"},
    {ParamKind::kAttentionNormBias, "blk.*.attn_norm_2.bias"},
    {ParamKind::kMlpNorm, "blk.*.attn_norm.weight"},
    {ParamKind::kMlpNormBias, "blk.*.attn_norm.bias"},
};

bool HasTwoNorms(const GgufFile& file) {
  return file.FindTensor("blk.0.attn_norm_2.weight") != nullptr;
}

absl::Status FinishGguf(const GgufKeys& keys, DecoderSpec* spec) {
  // What the converter calls query, key and value sorted.
  constexpr char kLayout[] = "tensor_data_layout";
  if (keys.Has(kLayout)) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view layout, keys.file().GetString(keys.Key(kLayout)));
    if (layout != "jploski") {
      return Unsupported(keys.Where(kLayout),
                         absl::StrCat("\"", layout, "\" is not supported; known is: jploski"));
    }
  }
  spec->parallel_residual = true;
  spec->shared_norm = !HasTwoNorms(keys.file());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> FalconFromHf(const HfConfig& config) {
  const HfObject root = config.root();
  WEFT_ASSIGN_OR_RETURN(const bool groups, root.GetBoolOr("new_decoder_architecture", false));
  WEFT_ASSIGN_OR_RETURN(const uint32_t norms, root.GetUintOr("num_ln_in_parallel_attn", 2));
  return ReadHfFamily(groups && norms == 2 ? Family(kTwoNorms) : Family({}), config);
}

absl::StatusOr<ModelDescription> FalconFromGguf(const GgufFile& file) {
  absl::Span<const TensorName> own_tensors = kGgufFusedQkv;
  if (HasTwoNorms(file)) own_tensors = kGgufTwoNorms;
  return ReadGgufFamily({.name = "falcon",
                         .architecture = "falcon",
                         .activation = Activation::kGeluErf,
                         .own_tensors = own_tensors,
                         .finish = FinishGguf},
                        file);
}

}  // namespace weft::shard

#include "shard/model/families/bloom.h"

#include "common/status.h"
#include "shard/model/families/gguf_family.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "transformer.word_embeddings.weight"},
    {ParamKind::kEmbeddingNorm, "transformer.word_embeddings_layernorm.weight"},
    {ParamKind::kEmbeddingNormBias, "transformer.word_embeddings_layernorm.bias"},
    {ParamKind::kAttentionNorm, "transformer.h.*.input_layernorm.weight"},
    {ParamKind::kAttentionNormBias, "transformer.h.*.input_layernorm.bias"},
    {ParamKind::kQuery, "transformer.h.*.self_attention.query_key_value.weight", Fusion::kByKvHead},
    {ParamKind::kQueryBias, "transformer.h.*.self_attention.query_key_value.bias",
     Fusion::kByKvHead},
    {ParamKind::kOutput, "transformer.h.*.self_attention.dense.weight"},
    {ParamKind::kOutputBias, "transformer.h.*.self_attention.dense.bias"},
    {ParamKind::kMlpNorm, "transformer.h.*.post_attention_layernorm.weight"},
    {ParamKind::kMlpNormBias, "transformer.h.*.post_attention_layernorm.bias"},
    {ParamKind::kUp, "transformer.h.*.mlp.dense_h_to_4h.weight"},
    {ParamKind::kUpBias, "transformer.h.*.mlp.dense_h_to_4h.bias"},
    {ParamKind::kDown, "transformer.h.*.mlp.dense_4h_to_h.weight"},
    {ParamKind::kDownBias, "transformer.h.*.mlp.dense_4h_to_h.bias"},
    {ParamKind::kFinalNorm, "transformer.ln_f.weight"},
    {ParamKind::kFinalNormBias, "transformer.ln_f.bias"},
    {ParamKind::kHead, "lm_head.weight"},
};

// Of the length that BLOOM was trained with, where config.json does not say: ALiBi itself has no
// end.
constexpr uint32_t kContextDefault = 2048;

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "apply_residual_connection_post_layernorm"));
  WEFT_ASSIGN_OR_RETURN(spec->context_tokens, root.GetUintOr("seq_length", kContextDefault));
  spec->activation = Activation::kGeluTanh;
  spec->position = PositionKind::kAlibi;
  spec->embedding_norm = true;
  spec->qkv_bias = spec->output_bias = spec->mlp_bias = true;
  return absl::OkStatus();
}

constexpr HfFamily kBloom = {.name = "bloom",
                             .architecture = "BloomForCausalLM",
                             .keys = {.layers = "n_layer|num_hidden_layers",
                                      .hidden = "n_embed|hidden_size",
                                      .heads = "n_head|num_attention_heads",
                                      .mlp_hidden = nullptr,
                                      .context_tokens = nullptr,
                                      .norm_epsilon = "layer_norm_epsilon"},
                             .tied_head_default = true,
                             .tensors = kTensors,
                             .optional_prefix = "transformer.",
                             .finish = Finish};

absl::Status FinishGguf(const GgufKeys&, DecoderSpec* spec) {
  spec->embedding_norm = true;
  return absl::OkStatus();
}

constexpr GgufFamily kBloomGguf = {.name = "bloom",
                                   .architecture = "bloom",
                                   .position = PositionKind::kAlibi,
                                   .own_tensors = kGgufFusedQkv,
                                   .finish = FinishGguf};

}  // namespace

absl::StatusOr<ModelDescription> BloomFromHf(const HfConfig& config) {
  return ReadHfFamily(kBloom, config);
}

absl::StatusOr<ModelDescription> BloomFromGguf(const GgufFile& file) {
  return ReadGgufFamily(kBloomGguf, file);
}

}  // namespace weft::shard

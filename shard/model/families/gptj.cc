#include "shard/model/families/gptj.h"

#include "common/status.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "transformer.wte.weight"},
    {ParamKind::kAttentionNorm, "transformer.h.*.ln_1.weight"},
    {ParamKind::kAttentionNormBias, "transformer.h.*.ln_1.bias"},
    {ParamKind::kQuery, "transformer.h.*.attn.q_proj.weight"},
    {ParamKind::kKey, "transformer.h.*.attn.k_proj.weight"},
    {ParamKind::kValue, "transformer.h.*.attn.v_proj.weight"},
    {ParamKind::kOutput, "transformer.h.*.attn.out_proj.weight"},
    {ParamKind::kUp, "transformer.h.*.mlp.fc_in.weight"},
    {ParamKind::kUpBias, "transformer.h.*.mlp.fc_in.bias"},
    {ParamKind::kDown, "transformer.h.*.mlp.fc_out.weight"},
    {ParamKind::kDownBias, "transformer.h.*.mlp.fc_out.bias"},
    {ParamKind::kFinalNorm, "transformer.ln_f.weight"},
    {ParamKind::kFinalNormBias, "transformer.ln_f.bias"},
    {ParamKind::kHead, "lm_head.weight"},
    {ParamKind::kHeadBias, "lm_head.bias"},
};

// Causal masks, which old files hold.
constexpr const char* kUnused[] = {"*.attn.bias", "*.attn.masked_bias"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->activation,
                        ActivationFromHf(root, "activation_function", "gelu_new"));
  WEFT_ASSIGN_OR_RETURN(spec->attention_kinds[0].rope.dims, root.GetUintOr("rotary_dim", 64));
  spec->parallel_residual = spec->shared_norm = true;
  spec->mlp_bias = spec->head_bias = true;
  return absl::OkStatus();
}

constexpr HfFamily kGptj = {.name = "gptj",
                            .architecture = "GPTJForCausalLM",
                            .keys = kGpt2SizeKeys,
                            .tensors = kTensors,
                            .query_key_order = RowOrder::kInterleavedRotary,
                            .unused = kUnused,
                            .finish = Finish};

}  // namespace

absl::StatusOr<ModelDescription> GptjFromHf(const HfConfig& config) {
  return ReadHfFamily(kGptj, config);
}

}  // namespace weft::shard

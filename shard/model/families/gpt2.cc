#include "shard/model/families/gpt2.h"

#include "common/status.h"
#include "shard/model/families/gguf_family.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/hf_family.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, "transformer.wte.weight"},
    {ParamKind::kPositionEmbedding, "transformer.wpe.weight"},
    {ParamKind::kAttentionNorm, "transformer.h.*.ln_1.weight"},
    {ParamKind::kAttentionNormBias, "transformer.h.*.ln_1.bias"},
    {ParamKind::kQuery, "transformer.h.*.attn.c_attn.weight", Fusion::kQueryKeyValue, true},
    {ParamKind::kQueryBias, "transformer.h.*.attn.c_attn.bias", Fusion::kQueryKeyValue},
    {ParamKind::kOutput, "transformer.h.*.attn.c_proj.weight", Fusion::kNone, true},
    {ParamKind::kOutputBias, "transformer.h.*.attn.c_proj.bias"},
    {ParamKind::kMlpNorm, "transformer.h.*.ln_2.weight"},
    {ParamKind::kMlpNormBias, "transformer.h.*.ln_2.bias"},
    {ParamKind::kUp, "transformer.h.*.mlp.c_fc.weight", Fusion::kNone, true},
    {ParamKind::kUpBias, "transformer.h.*.mlp.c_fc.bias"},
    {ParamKind::kDown, "transformer.h.*.mlp.c_proj.weight", Fusion::kNone, true},
    {ParamKind::kDownBias, "transformer.h.*.mlp.c_proj.bias"},
    {ParamKind::kFinalNorm, "transformer.ln_f.weight"},
    {ParamKind::kFinalNormBias, "transformer.ln_f.bias"},
    {ParamKind::kHead, "lm_head.weight"},
};

// Causal masks, which old files hold.
constexpr const char* kUnused[] = {"*.attn.bias", "*.attn.masked_bias"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "scale_attn_by_inverse_layer_idx"));
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "add_cross_attention"));
  WEFT_RETURN_IF_ERROR(ExpectTrue(root, "scale_attn_weights"));
  WEFT_ASSIGN_OR_RETURN(spec->activation,
                        ActivationFromHf(root, "activation_function", "gelu_new"));
  spec->position = PositionKind::kLearned;
  spec->position_rows = spec->context_tokens;
  spec->qkv_bias = spec->output_bias = spec->mlp_bias = true;
  return absl::OkStatus();
}

constexpr HfFamily kGpt2 = {.name = "gpt2",
                            .architecture = "GPT2LMHeadModel",
                            .keys = kGpt2SizeKeys,
                            .tied_head_default = true,
                            .tensors = kTensors,
                            .optional_prefix = "transformer.",
                            .unused = kUnused,
                            .finish = Finish};

constexpr GgufFamily kGpt2Gguf = {.name = "gpt2",
                                  .architecture = "gpt2",
                                  .position = PositionKind::kLearned,
                                  .own_tensors = kGgufFusedQkv};

}  // namespace

absl::StatusOr<ModelDescription> Gpt2FromHf(const HfConfig& config) {
  return ReadHfFamily(kGpt2, config);
}

absl::StatusOr<ModelDescription> Gpt2FromGguf(const GgufFile& file) {
  return ReadGgufFamily(kGpt2Gguf, file);
}

}  // namespace weft::shard

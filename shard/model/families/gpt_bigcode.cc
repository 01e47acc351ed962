#include "shard/model/families/gpt_bigcode.h"

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
    {ParamKind::kQuery, "transformer.h.*.attn.c_attn.weight", Fusion::kQueryKeyValue},
    {ParamKind::kQueryBias, "transformer.h.*.attn.c_attn.bias", Fusion::kQueryKeyValue},
    {ParamKind::kOutput, "transformer.h.*.attn.c_proj.weight"},
    {ParamKind::kOutputBias, "transformer.h.*.attn.c_proj.bias"},
    {ParamKind::kMlpNorm, "transformer.h.*.ln_2.weight"},
    {ParamKind::kMlpNormBias, "transformer.h.*.ln_2.bias"},
    {ParamKind::kUp, "transformer.h.*.mlp.c_fc.weight"},
    {ParamKind::kUpBias, "transformer.h.*.mlp.c_fc.bias"},
    {ParamKind::kDown, "transformer.h.*.mlp.c_proj.weight"},
    {ParamKind::kDownBias, "transformer.h.*.mlp.c_proj.bias"},
    {ParamKind::kFinalNorm, "transformer.ln_f.weight"},
    {ParamKind::kFinalNormBias, "transformer.ln_f.bias"},
    {ParamKind::kHead, "lm_head.weight"},
};

// Causal masks, which old files hold.
constexpr const char* kUnused[] = {"*.attn.bias", "*.attn.masked_bias"};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(ExpectTrue(root, "scale_attn_weights"));
  WEFT_RETURN_IF_ERROR(ExpectFalse(root, "add_cross_attention"));
  // Without it query, key and value lie by head; no published checkpoint does that.
  WEFT_RETURN_IF_ERROR(ExpectTrue(root, "multi_query"));
  WEFT_ASSIGN_OR_RETURN(spec->activation,
                        ActivationFromHf(root, "activation_function", "gelu_pytorch_tanh"));
  spec->kv_heads = 1;
  spec->position = PositionKind::kLearned;
  spec->position_rows = spec->context_tokens;
  spec->qkv_bias = spec->output_bias = spec->mlp_bias = true;
  return absl::OkStatus();
}

constexpr HfFamily kGptBigcode = {.name = "gpt_bigcode",
                                  .architecture = "GPTBigCodeForCausalLM",
                                  .keys = kGpt2SizeKeys,
                                  .tied_head_default = true,
                                  .tensors = kTensors,
                                  .optional_prefix = "transformer.",
                                  .unused = kUnused,
                                  .finish = Finish};

constexpr GgufFamily kGptBigcodeGguf = {.name = "gpt_bigcode",
                                        .architecture = "starcoder",
                                        .position = PositionKind::kLearned,
                                        .own_tensors = kGgufFusedQkv};

}  // namespace

absl::StatusOr<ModelDescription> GptBigcodeFromHf(const HfConfig& config) {
  return ReadHfFamily(kGptBigcode, config);
}

absl::StatusOr<ModelDescription> GptBigcodeFromGguf(const GgufFile& file) {
  return ReadGgufFamily(kGptBigcodeGguf, file);
}

}  // namespace weft::shard

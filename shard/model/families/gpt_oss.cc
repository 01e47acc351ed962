#include "shard/model/families/gpt_oss.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/expert_keys.h"
#include "shard/model/families/llama_like.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

// Of GptOssConfig, where config.json has no such key; GGUF files never say the last two.
constexpr uint32_t kKvHeadsDefault = 8;
constexpr uint32_t kWindowDefault = 128;
constexpr float kAlpha = 1.702f;
constexpr float kLimit = 7.0f;

constexpr TensorName kHfTensors[] = {
    {ParamKind::kSinks, "model.layers.*.self_attn.sinks"},
    {ParamKind::kRouter, "model.layers.*.mlp.router.weight"},
    {ParamKind::kRouterBias, "model.layers.*.mlp.router.bias"},
    {ParamKind::kExpertGate, "model.layers.*.mlp.experts.gate_up_proj", Fusion::kGateUpByTurns,
     /*transposed=*/true},
    {ParamKind::kExpertGateBias, "model.layers.*.mlp.experts.gate_up_proj_bias",
     Fusion::kGateUpByTurns},
    {ParamKind::kExpertDown, "model.layers.*.mlp.experts.down_proj", Fusion::kNone,
     /*transposed=*/true},
    {ParamKind::kExpertDownBias, "model.layers.*.mlp.experts.down_proj_bias"},
};

constexpr TensorName kGgufTensors[] = {
    {ParamKind::kSinks, "blk.*.attn_sinks.weight"},
    {ParamKind::kMlpNorm, "blk.*.post_attention_norm.weight"},
    {ParamKind::kRouterBias, "blk.*.ffn_gate_inp.bias"},
    {ParamKind::kExpertGateBias, "blk.*.ffn_gate_exps.bias"},
    {ParamKind::kExpertUpBias, "blk.*.ffn_up_exps.bias"},
    {ParamKind::kExpertDownBias, "blk.*.ffn_down_exps.bias"},
};

constexpr ExpertKeys kExpertKeys = {
    .count = "num_local_experts", .hidden = "intermediate_size", .renormalised = nullptr};

void FinishBoth(DecoderSpec* spec) {
  spec->attention_sinks = true;
  spec->activation = Activation::kClampedSwiglu;
  spec->experts.router_bias = true;
  spec->experts.bias = true;
}

std::vector<bool> EverySecond(uint32_t layers) {
  std::vector<bool> windowed;
  for (uint32_t layer = 0; layer < layers; ++layer) windowed.push_back(layer % 2 == 0);
  return windowed;
}

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  FinishBoth(spec);
  WEFT_ASSIGN_OR_RETURN(const float alpha, root.GetFloatOr("swiglu_alpha", kAlpha));
  if (alpha != kAlpha) {
    return Unsupported(root.Where("swiglu_alpha"),
                       absl::StrCat(alpha, " is not supported; expected ", kAlpha));
  }
  WEFT_ASSIGN_OR_RETURN(spec->activation_limit, root.GetFloatOr("swiglu_limit", kLimit));
  if (!(spec->activation_limit > 0 && std::isfinite(spec->activation_limit))) {
    return root.Bad("swiglu_limit", "must be a number above 0");
  }
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("attention_bias", true));
  spec->output_bias = spec->qkv_bias;
  if (!root.IsNull("sliding_window")) {
    WEFT_ASSIGN_OR_RETURN(std::vector<bool> windowed, WindowedLayers(root, spec->layers));
    if (windowed.empty()) windowed = EverySecond(spec->layers);
    WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUintOr("sliding_window", kWindowDefault));
    WEFT_RETURN_IF_ERROR(SetWindow(root.Where("sliding_window"), window, windowed, spec));
  }
  return ExpertsFromHf(root, kExpertKeys, spec);
}

absl::Status FinishGguf(const GgufKeys& keys, DecoderSpec* spec) {
  FinishBoth(spec);
  spec->activation_limit = kLimit;
  // transformers does not round the ends of yarn's range for this family, and no key says so.
  spec->attention_kinds[0].rope.truncate = false;
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, keys.Uint("attention.sliding_window"));
  return SetWindow(keys.Where("attention.sliding_window"), window, EverySecond(spec->layers), spec);
}

constexpr LlamaLike kGptOss = {.name = "gpt_oss",
                               .architecture = "GptOssForCausalLM",
                               .kv_heads_default = kKvHeadsDefault,
                               .own_hf_names = kHfTensors,
                               .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> GptOssFromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kGptOss, config);
}

absl::StatusOr<ModelDescription> GptOssFromGguf(const GgufFile& file) {
  return ReadGgufFamily({.name = "gpt_oss",
                         .architecture = "gpt-oss",
                         .norm = NormKind::kRmsNorm,
                         .activation = Activation::kClampedSwiglu,
                         .gated_mlp = true,
                         .experts = GgufExperts::kRenormalised,
                         .reads_window = true,
                         .own_tensors = kGgufTensors,
                         .finish = FinishGguf},
                        file);
}

}  // namespace weft::shard

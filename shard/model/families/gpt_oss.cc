#include "shard/model/families/gpt_oss.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/tensor_type.h"
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

// Of quantization_config; the same in config.json and in the messages of refusals.
constexpr char kMxfp4[] = "mxfp4";

// The first two rows are of files in a float type, the next two of those in MXFP4.
constexpr TensorName kHfTensors[] = {
    {ParamKind::kExpertGate, "model.layers.*.mlp.experts.gate_up_proj", Fusion::kGateUpByTurns,
     /*transposed=*/true},
    {ParamKind::kExpertDown, "model.layers.*.mlp.experts.down_proj", Fusion::kNone,
     /*transposed=*/true},
    {ParamKind::kExpertGate, "model.layers.*.mlp.experts.gate_up_proj_blocks",
     Fusion::kGateUpByTurns, /*transposed=*/false,
     "model.layers.*.mlp.experts.gate_up_proj_scales"},
    {ParamKind::kExpertDown, "model.layers.*.mlp.experts.down_proj_blocks", Fusion::kNone,
     /*transposed=*/false, "model.layers.*.mlp.experts.down_proj_scales"},
    {ParamKind::kSinks, "model.layers.*.self_attn.sinks"},
    {ParamKind::kRouter, "model.layers.*.mlp.router.weight"},
    {ParamKind::kRouterBias, "model.layers.*.mlp.router.bias"},
    {ParamKind::kExpertGateBias, "model.layers.*.mlp.experts.gate_up_proj_bias",
     Fusion::kGateUpByTurns},
    {ParamKind::kExpertDownBias, "model.layers.*.mlp.experts.down_proj_bias"},
};
constexpr size_t kFloatRows = 2;

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

absl::Status CheckBlocks(const HfObject& root, const char* key) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t size, root.GetUint(key));
  constexpr uint64_t kBlock = FormatOf(TensorType::kMxfp4).elements;
  if (size % kBlock == 0) return absl::OkStatus();
  return root.Bad(
      key, absl::StrCat("must be a multiple of ", kBlock, " with experts in MXFP4, found ", size));
}

// Whether the experts are in MXFP4. What modules_to_not_convert names besides does not matter:
// nothing but experts is ever packed that way.
absl::StatusOr<bool> InMxfp4(const HfObject& root) {
  if (!root.Has("quantization_config")) return false;
  WEFT_ASSIGN_OR_RETURN(const HfObject quantisation, root.GetObject("quantization_config"));
  WEFT_ASSIGN_OR_RETURN(const std::string method, quantisation.GetString("quant_method"));
  if (method != kMxfp4) {
    return Unsupported(quantisation.Where("quant_method"),
                       absl::StrCat("\"", method, "\" is not supported; known is: ", kMxfp4,
                                    "; or use a checkpoint in F32, F16 or BF16, or a GGUF file"));
  }
  WEFT_RETURN_IF_ERROR(quantisation.GetStrings("modules_to_not_convert").status());
  // MXFP4 has one layout; whoever names another does not mean it.
  for (const char* const key : {"bits", "group_size", "weight_block_size"}) {
    if (quantisation.Has(key)) {
      return Unsupported(quantisation.Where(key), "is not supported with quant_method \"mxfp4\"");
    }
  }
  WEFT_RETURN_IF_ERROR(CheckBlocks(root, "hidden_size"));
  WEFT_RETURN_IF_ERROR(CheckBlocks(root, "intermediate_size"));
  return true;
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
                               .reads_quantised = true,
                               .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> GptOssFromHf(const HfConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const bool packed, InMxfp4(config.root()));
  LlamaLike family = kGptOss;
  if (packed) family.own_hf_names.remove_prefix(kFloatRows);
  return LlamaLikeFromHf(family, config);
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

#include "shard/model/families/qwen2_moe.h"

#include <vector>

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/expert_keys.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

// Of Qwen2MoeConfig, where config.json has no such key.
constexpr uint32_t kKvHeadsDefault = 16;
constexpr uint32_t kWindowDefault = 4096;
constexpr uint32_t kMaxWindowLayersDefault = 28;

constexpr ExpertKeys kExpertKeys = {.shared_hidden = "shared_expert_intermediate_size"};

// Every second layer below max_window_layers has the window, unless layer_types says which.
absl::Status Windows(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(const bool used, root.GetBoolOr("use_sliding_window", false));
  if (!used || root.IsNull("sliding_window")) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(std::vector<bool> windowed, WindowedLayers(root, spec->layers));
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUintOr("sliding_window", kWindowDefault));
  WEFT_ASSIGN_OR_RETURN(const uint32_t below,
                        root.GetUintOr("max_window_layers", kMaxWindowLayersDefault));
  if (windowed.empty()) {
    for (uint32_t layer = 0; layer < spec->layers; ++layer) {
      windowed.push_back(layer % 2 == 0 && layer < below);
    }
  }
  return SetWindow(root.Where("sliding_window"), window, windowed, spec);
}

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("qkv_bias", true));
  WEFT_RETURN_IF_ERROR(Windows(root, spec));
  WEFT_RETURN_IF_ERROR(PlainLayersFromHf(root, spec));
  return ExpertsFromHf(root, kExpertKeys, spec);
}

// llama.cpp never renormalises the weights of this architecture.
constexpr LlamaLike kQwen2Moe = {.name = "qwen2_moe",
                                 .architecture = "Qwen2MoeForCausalLM",
                                 .gguf_name = "qwen2moe",
                                 .kv_heads_default = kKvHeadsDefault,
                                 .gguf_experts = GgufExperts::kShares,
                                 .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> Qwen2MoeFromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kQwen2Moe, config);
}

absl::StatusOr<ModelDescription> Qwen2MoeFromGguf(const GgufFile& file) {
  return LlamaLikeFromGguf(kQwen2Moe, file);
}

}  // namespace weft::shard

#include "shard/model/families/qwen2.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

// Of Qwen2Config, where config.json has no such key.
constexpr uint32_t kKvHeadsDefault = 32;
constexpr uint32_t kWindowDefault = 4096;
constexpr uint32_t kMaxWindowLayersDefault = 28;

// Layers from max_window_layers on have the window, unless layer_types says for each which has.
absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  spec->qkv_bias = true;
  WEFT_ASSIGN_OR_RETURN(const bool used, root.GetBoolOr("use_sliding_window", false));
  WEFT_ASSIGN_OR_RETURN(std::vector<bool> windowed, WindowedLayers(root, spec->layers));
  if (!used || root.IsNull("sliding_window")) {
    if (!absl::c_linear_search(windowed, true)) return absl::OkStatus();
    return root.Bad("layer_types", "\"sliding_attention\" needs use_sliding_window and a window");
  }
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUintOr("sliding_window", kWindowDefault));
  WEFT_ASSIGN_OR_RETURN(const uint32_t full,
                        root.GetUintOr("max_window_layers", kMaxWindowLayersDefault));
  if (windowed.empty()) {
    for (uint32_t layer = 0; layer < spec->layers; ++layer) windowed.push_back(layer >= full);
  }
  return SetWindow(root.Where("sliding_window"), window, windowed, spec);
}

constexpr LlamaLike kQwen2 = {.name = "qwen2",
                              .architecture = "Qwen2ForCausalLM",
                              .kv_heads_default = kKvHeadsDefault,
                              .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> Qwen2FromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kQwen2, config);
}

absl::StatusOr<ModelDescription> Qwen2FromGguf(const GgufFile& file) {
  return LlamaLikeFromGguf(kQwen2, file);
}

}  // namespace weft::shard

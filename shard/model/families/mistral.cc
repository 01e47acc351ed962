#include "shard/model/families/mistral.h"

#include <vector>

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

// Of MistralConfig, where config.json has no such key; null means no window, and a window is that
// of all layers.
constexpr uint32_t kKvHeadsDefault = 8;
constexpr uint32_t kWindowDefault = 4096;

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  if (root.IsNull("sliding_window")) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUintOr("sliding_window", kWindowDefault));
  return SetWindow(root.Where("sliding_window"), window, std::vector<bool>(spec->layers, true),
                   spec);
}

constexpr LlamaLike kMistral = {.name = "mistral",
                                .architecture = "MistralForCausalLM",
                                .kv_heads_default = kKvHeadsDefault,
                                .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> MistralFromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kMistral, config);
}

}  // namespace weft::shard

#include "shard/model/families/qwen3.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/llama_like.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(const bool window, root.GetBoolOr("use_sliding_window", false));
  if (window) {
    return Unsupported(root.Where("use_sliding_window"), "true is not supported; expected false");
  }
  // transformers 5 writes the kind of each layer.
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> layers, root.GetStrings("layer_types"));
  for (const std::string& layer : layers) {
    if (layer == "full_attention") continue;
    return Unsupported(root.Where("layer_types"),
                       absl::StrCat("\"", layer, "\" is not supported; known is: full_attention"));
  }
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("attention_bias", false));
  spec->output_bias = spec->qkv_bias;
  spec->head_norms = true;
  return absl::OkStatus();
}

// Of Qwen3Config.
constexpr uint32_t kKvHeadsDefault = 32;

constexpr LlamaLike kQwen3 = {.name = "qwen3",
                              .architecture = "Qwen3ForCausalLM",
                              .kv_heads_default = kKvHeadsDefault,
                              .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> Qwen3FromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kQwen3, config);
}

absl::StatusOr<ModelDescription> Qwen3FromGguf(const GgufFile& file) {
  return LlamaLikeFromGguf(kQwen3, file);
}

}  // namespace weft::shard

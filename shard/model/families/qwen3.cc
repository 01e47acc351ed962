#include "shard/model/families/qwen3.h"

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("attention_bias", false));
  spec->output_bias = spec->qkv_bias;
  spec->head_norms = true;
  return WindowOfLastLayers(root, spec);
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

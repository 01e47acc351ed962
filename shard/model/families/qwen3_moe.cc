#include "shard/model/families/qwen3_moe.h"

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/expert_keys.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

// Of Qwen3MoeConfig, where config.json has no such key.
constexpr uint32_t kKvHeadsDefault = 4;

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(const bool windows, root.GetBoolOr("use_sliding_window", false));
  if (windows && !root.IsNull("sliding_window")) {
    WEFT_RETURN_IF_ERROR(WindowOfAllLayers(root, spec));
  }
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("attention_bias", false));
  spec->output_bias = spec->qkv_bias;
  spec->head_norms = true;
  WEFT_RETURN_IF_ERROR(PlainLayersFromHf(root, spec));
  return ExpertsFromHf(root, ExpertKeys{}, spec);
}

constexpr LlamaLike kQwen3Moe = {.name = "qwen3_moe",
                                 .architecture = "Qwen3MoeForCausalLM",
                                 .gguf_name = "qwen3moe",
                                 .kv_heads_default = kKvHeadsDefault,
                                 .gguf_experts = GgufExperts::kRenormalised,
                                 .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> Qwen3MoeFromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kQwen3Moe, config);
}

absl::StatusOr<ModelDescription> Qwen3MoeFromGguf(const GgufFile& file) {
  return LlamaLikeFromGguf(kQwen3Moe, file);
}

}  // namespace weft::shard

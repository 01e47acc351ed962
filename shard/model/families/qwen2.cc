#include "shard/model/families/qwen2.h"

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

// Of Qwen2Config, where config.json has no such key.
constexpr uint32_t kKvHeadsDefault = 32;

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  spec->qkv_bias = true;
  return WindowOfLastLayers(root, spec);
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

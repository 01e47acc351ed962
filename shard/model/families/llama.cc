#include "shard/model/families/llama.h"

#include "common/status.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->qkv_bias, root.GetBoolOr("attention_bias", false));
  spec->output_bias = spec->qkv_bias;
  WEFT_ASSIGN_OR_RETURN(spec->mlp_bias, root.GetBoolOr("mlp_bias", false));
  return absl::OkStatus();
}

constexpr LlamaLike kLlama = {.name = "llama",
                              .architecture = "LlamaForCausalLM",
                              .gguf_query_key_order = RowOrder::kInterleavedRotary,
                              .gguf_experts = GgufExperts::kRenormalised,
                              .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> LlamaFromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kLlama, config);
}

absl::StatusOr<ModelDescription> LlamaFromGguf(const GgufFile& file) {
  return LlamaLikeFromGguf(kLlama, file);
}

}  // namespace weft::shard

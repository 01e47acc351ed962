#include "shard/model/families/mistral.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/llama_like.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

// Of MistralConfig, where config.json has no such key; null means no window.
constexpr uint32_t kKvHeadsDefault = 8;
constexpr uint32_t kWindowDefault = 4096;

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  if (root.IsNull("sliding_window")) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUintOr("sliding_window", kWindowDefault));
  if (window < spec->context_tokens) {
    return Unsupported(root.Where("sliding_window"),
                       absl::StrCat(window, " is not supported below the context of ",
                                    spec->context_tokens, " tokens; expected null"));
  }
  return absl::OkStatus();
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

// Gemma's GGUF files. What is added to the weights of its norms is in them already.

#include <cmath>
#include <vector>

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/gemma.h"
#include "shard/model/families/gguf_family.h"

namespace weft::shard {
namespace {

// Layers of the 27B models. No key says what scores are divided by: it is the root of the head
// size, but for these of hidden / heads.
constexpr uint32_t kLargest2Layers = 46;
constexpr uint32_t kLargest3Layers = 62;

// All but every `pattern`-th layer have a window.
std::vector<bool> Windowed(uint32_t layers, uint32_t pattern) {
  std::vector<bool> windowed;
  for (uint32_t layer = 0; layer < layers; ++layer) windowed.push_back((layer + 1) % pattern != 0);
  return windowed;
}

absl::Status FinishBoth(const GgufKeys& keys, uint32_t largest_layers, DecoderSpec* spec) {
  spec->post_norms = true;
  spec->embedding_scale = std::sqrt(static_cast<float>(spec->hidden));
  if (spec->layers == largest_layers && spec->heads != 0) {
    spec->attention_scale =
        std::sqrt(static_cast<float>(spec->heads) / static_cast<float>(spec->hidden));
  }
  for (const auto& [key, cap] : {std::pair("attn_logit_softcapping", &spec->attention_soft_cap),
                                 std::pair("final_logit_softcapping", &spec->logit_soft_cap)}) {
    WEFT_ASSIGN_OR_RETURN(*cap, keys.FloatOr(key, 0.0f));
    if (!(*cap >= 0 && std::isfinite(*cap))) return keys.Bad(key, "must be a number of at least 0");
  }
  return absl::OkStatus();
}

absl::Status Finish2(const GgufKeys& keys, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(FinishBoth(keys, kLargest2Layers, spec));
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, keys.Uint("attention.sliding_window"));
  return SetWindow(keys.Where("attention.sliding_window"), window, Windowed(spec->layers, 2), spec);
}

absl::Status Finish3(const GgufKeys& keys, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(FinishBoth(keys, kLargest3Layers, spec));
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, keys.Uint("attention.sliding_window"));
  if (window == 0) return keys.Bad("attention.sliding_window", "must be at least 1 token, found 0");
  WEFT_ASSIGN_OR_RETURN(const uint32_t pattern, keys.UintOr("attention.sliding_window_pattern", 6));
  if (pattern == 0) {
    return keys.Bad("attention.sliding_window_pattern", "must be at least 1, found 0");
  }
  // Rotary scaling is that of the layers without a window.
  AttentionKind sliding;
  sliding.rope.dims = spec->attention_kinds[0].rope.dims;
  WEFT_ASSIGN_OR_RETURN(sliding.rope.theta, keys.FloatOr("rope.freq_base_swa", 10000.0f));
  sliding.window_tokens = window < spec->context_tokens ? window : 0;
  spec->attention_kinds.push_back(sliding);
  const std::vector<bool> windowed = Windowed(spec->layers, pattern);
  spec->layer_attention.assign(windowed.begin(), windowed.end());
  return absl::OkStatus();
}

constexpr GgufFamily Family(const char* name, const char* architecture,
                            absl::Status (*finish)(const GgufKeys&, DecoderSpec*)) {
  return {.name = name,
          .architecture = architecture,
          .norm = NormKind::kRmsNorm,
          .gated_mlp = true,
          .reads_window = true,
          .finish = finish};
}

}  // namespace

absl::StatusOr<ModelDescription> Gemma2FromGguf(const GgufFile& file) {
  return ReadGgufFamily(Family("gemma2", "gemma2", Finish2), file);
}

absl::StatusOr<ModelDescription> Gemma3FromGguf(const GgufFile& file) {
  return ReadGgufFamily(Family("gemma3_text", "gemma3", Finish3), file);
}

}  // namespace weft::shard

#include "shard/model/families/attention_keys.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

// Of Qwen2Config and Qwen3Config, where config.json has no such key.
constexpr uint32_t kWindowDefault = 4096;
constexpr uint32_t kMaxWindowLayersDefault = 28;

}  // namespace

absl::Status SetWindow(absl::string_view where, uint32_t tokens, const std::vector<bool>& windowed,
                       DecoderSpec* spec) {
  if (tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": must be null or at least 1 token, found 0"));
  }
  if (tokens >= spec->context_tokens || !absl::c_linear_search(windowed, true)) {
    return absl::OkStatus();
  }
  if (!absl::c_linear_search(windowed, false)) {
    spec->attention_kinds[0].window_tokens = tokens;
    return absl::OkStatus();
  }
  AttentionKind kind = spec->attention_kinds[0];
  kind.window_tokens = tokens;
  spec->attention_kinds.push_back(kind);
  spec->layer_attention.assign(windowed.begin(), windowed.end());
  return absl::OkStatus();
}

absl::Status WindowOfAllLayers(const HfObject& root, DecoderSpec* spec) {
  if (!root.Has("sliding_window")) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, root.GetUint("sliding_window"));
  return SetWindow(root.Where("sliding_window"), window, std::vector<bool>(spec->layers, true),
                   spec);
}

absl::Status WindowOfAllLayers(const GgufKeys& keys, DecoderSpec* spec) {
  constexpr char kWindow[] = "attention.sliding_window";
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, keys.UintOr(kWindow, 0));
  if (window == 0) return absl::OkStatus();
  return SetWindow(keys.Where(kWindow), window, std::vector<bool>(spec->layers, true), spec);
}

absl::StatusOr<std::vector<bool>> WindowedLayers(const HfObject& root, uint32_t layers) {
  std::vector<bool> windowed;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, root.GetStrings("layer_types"));
  if (kinds.empty()) return windowed;
  if (kinds.size() != layers) {
    return root.Bad("layer_types", absl::StrCat("must have one entry for each of the ", layers,
                                                " layers, found ", kinds.size()));
  }
  for (const std::string& kind : kinds) {
    if (kind != "full_attention" && kind != "sliding_attention") {
      return Unsupported(root.Where("layer_types"),
                         absl::StrCat("\"", kind,
                                      "\" is not supported; known are: full_attention, "
                                      "sliding_attention"));
    }
    windowed.push_back(kind == "sliding_attention");
  }
  return windowed;
}

absl::Status WindowOfLastLayers(const HfObject& root, DecoderSpec* spec) {
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

}  // namespace weft::shard

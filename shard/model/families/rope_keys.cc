#include "shard/model/families/rope_keys.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weft::shard {

absl::Status Unsupported(absl::string_view where, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(where, ": ", what));
}

absl::Status RopeFromSettings(const HfObject& scaling, RopeSpec* rope) {
  WEFT_ASSIGN_OR_RETURN(rope->theta, scaling.GetFloatOr("rope_theta", rope->theta));
  const char* const type_key = scaling.Has("rope_type") ? "rope_type" : "type";
  WEFT_ASSIGN_OR_RETURN(const std::string type, scaling.GetStringOr(type_key, "default"));
  if (type == "default") return absl::OkStatus();
  if (type != "linear" && type != "llama3") {
    return Unsupported(scaling.Where(type_key),
                       absl::StrCat("\"", type,
                                    "\" is not supported; known are: default, linear, "
                                    "llama3"));
  }
  WEFT_ASSIGN_OR_RETURN(rope->factor, scaling.GetFloat("factor"));
  rope->scaling = type == "linear" ? RopeScalingKind::kLinear : RopeScalingKind::kLlama3;
  if (rope->scaling == RopeScalingKind::kLlama3) {
    WEFT_ASSIGN_OR_RETURN(rope->low_freq_factor, scaling.GetFloat("low_freq_factor"));
    WEFT_ASSIGN_OR_RETURN(rope->high_freq_factor, scaling.GetFloat("high_freq_factor"));
    WEFT_ASSIGN_OR_RETURN(rope->original_context_tokens,
                          scaling.GetUint("original_max_position_embeddings"));
  }
  return absl::OkStatus();
}

absl::Status RopeFromHf(const HfObject& root, RopeSpec* rope) {
  const char* const scaling_key = root.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  WEFT_ASSIGN_OR_RETURN(rope->theta, root.GetFloatOr("rope_theta", 10000.0f));
  if (!root.Has(scaling_key)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const HfObject scaling, root.GetObject(scaling_key));
  return RopeFromSettings(scaling, rope);
}

absl::Status RopeFromGguf(const GgufFile& file, const std::string& architecture, RopeSpec* rope) {
  const std::string prefix = absl::StrCat(architecture, ".rope.");
  if (file.Has(prefix + "freq_base")) {
    WEFT_ASSIGN_OR_RETURN(const double theta, file.GetFloat(prefix + "freq_base"));
    rope->theta = static_cast<float>(theta);
  }
  std::string type = "none";
  if (file.Has(prefix + "scaling.type")) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view text, file.GetString(prefix + "scaling.type"));
    type = std::string(text);
  }
  if (type == "linear") {
    WEFT_ASSIGN_OR_RETURN(const double factor, file.GetFloat(prefix + "scaling.factor"));
    rope->factor = static_cast<float>(factor);
    rope->scaling = RopeScalingKind::kLinear;
  } else if (type != "none") {
    return Unsupported(absl::StrCat(file.path(), ": ", prefix, "scaling.type"),
                       absl::StrCat("\"", type, "\" is not supported; known are: none, linear"));
  }
  // llama3 scaling arrives as a tensor of divisors, computed when the file was made.
  const GgufTensor* const factors = file.FindTensor("rope_freqs.weight");
  if (factors == nullptr) return absl::OkStatus();
  const std::string where = absl::StrCat(file.path(), ": tensor rope_freqs.weight");
  if (rope->scaling != RopeScalingKind::kNone) {
    return Unsupported(where, "is not supported together with linear rotary scaling");
  }
  if (factors->type != TensorType::kF32 || factors->dims.size() != 1 ||
      factors->dims[0] != rope->dims / 2) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected F32 of ", rope->dims / 2,
                                                   " elements (half of the ", rope->dims,
                                                   " rotary dimensions)"));
  }
  rope->scaling = RopeScalingKind::kFrequencyFactors;
  rope->frequency_factors.resize(rope->dims / 2);
  std::memcpy(rope->frequency_factors.data(), factors->data.data(), factors->data.size());
  return absl::OkStatus();
}

}  // namespace weft::shard

// Rotary settings of GGUF files.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr char kType[] = "rope.scaling.type";
constexpr char kFactor[] = "rope.scaling.factor";
constexpr char kOriginal[] = "rope.scaling.original_context_length";
constexpr char kAttention[] = "rope.scaling.attn_factor";

absl::Status ReadYarn(const GgufKeys& keys, RopeSpec* rope) {
  rope->scaling = RopeScalingKind::kYarn;
  WEFT_ASSIGN_OR_RETURN(rope->factor, keys.Float(kFactor));
  WEFT_ASSIGN_OR_RETURN(rope->original_context_tokens, keys.Uint(kOriginal));
  WEFT_ASSIGN_OR_RETURN(rope->beta_fast,
                        keys.FloatOr("rope.scaling.yarn_beta_fast", rope->beta_fast));
  WEFT_ASSIGN_OR_RETURN(rope->beta_slow,
                        keys.FloatOr("rope.scaling.yarn_beta_slow", rope->beta_slow));
  WEFT_ASSIGN_OR_RETURN(const float attention, keys.FloatOr(kAttention, 1.0f));
  rope->attention_factor = attention * (1.0f + 0.1f * std::log(std::max(rope->factor, 1.0f)));
  for (const char* key : {"rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor",
                          "rope.scaling.yarn_attn_factor"}) {
    if (keys.Has(key)) return Unsupported(keys.Where(key), "is not supported");
  }
  return absl::OkStatus();
}

// Divisors of the frequencies from a tensor; nothing when there is none of that name.
absl::Status ReadFactors(const GgufKeys& keys, const char* name, RopeSpec* rope) {
  const GgufFile& file = keys.file();
  const GgufTensor* const factors = file.FindTensor(name);
  if (factors == nullptr) return absl::OkStatus();
  const std::string where = absl::StrCat(file.path(), ": tensor ", name);
  if (rope->scaling != RopeScalingKind::kNone) {
    return Unsupported(where, "is not supported together with linear or yarn rotary scaling");
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

// longrope: the set for the longest context, as RopeFromSettings has it; the other set is not read.
absl::Status ReadLong(const GgufKeys& keys, RopeSpec* rope) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t context, keys.Uint("context_length"));
  WEFT_ASSIGN_OR_RETURN(const uint32_t original, keys.UintOr(kOriginal, context));
  WEFT_ASSIGN_OR_RETURN(rope->attention_factor, keys.FloatOr(kAttention, 1.0f));
  return ReadFactors(
      keys, context > original ? "rope_factors_long.weight" : "rope_factors_short.weight", rope);
}

}  // namespace

absl::Status RopeFromGguf(const GgufKeys& keys, RopeSpec* rope) {
  const GgufFile& file = keys.file();
  WEFT_ASSIGN_OR_RETURN(rope->theta, keys.FloatOr("rope.freq_base", rope->theta));
  std::string type = "none";
  if (keys.Has(kType)) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view text, file.GetString(keys.Key(kType)));
    type = std::string(text);
  }
  if (type == "linear") {
    rope->scaling = RopeScalingKind::kLinear;
    WEFT_ASSIGN_OR_RETURN(rope->factor, keys.Float(kFactor));
  } else if (type == "yarn") {
    WEFT_RETURN_IF_ERROR(ReadYarn(keys, rope));
  } else if (type != "none" && type != "longrope") {
    return Unsupported(
        keys.Where(kType),
        absl::StrCat("\"", type, "\" is not supported; known are: none, linear, yarn, longrope"));
  }
  // Files of Phi-3 tell longrope by its tensors alone.
  if (type == "longrope" || file.FindTensor("rope_factors_long.weight") != nullptr) {
    return ReadLong(keys, rope);
  }
  // llama3 scaling arrives as divisors too, computed when the file was made.
  return ReadFactors(keys, "rope_freqs.weight", rope);
}

}  // namespace weft::shard

#include "shard/model/families/rope_keys.h"

#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weft::shard {

absl::Status Unsupported(absl::string_view where, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(where, ": ", what));
}

namespace {

const char* ScalingKey(const HfObject& root) {
  return root.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
}

const char* TypeKey(const HfObject& settings) {
  return settings.Has("rope_type") ? "rope_type" : "type";
}

constexpr const char* kOriginal = "original_max_position_embeddings";

// What YaRN and longrope multiply cosines and sines by, unless told otherwise.
float YarnAttention(float factor, float scale) {
  return factor <= 1.0f ? 1.0f : 0.1f * scale * std::log(factor) + 1.0f;
}
float LongAttention(float factor, uint32_t original) {
  return factor <= 1.0f ? 1.0f : std::sqrt(1.0f + std::log(factor) / std::log(float(original)));
}

// The settings of one kind of layer, and config.json around them.
struct HfRope {
  const HfObject& root;
  const HfObject& settings;
  RopeSpec* rope;

  absl::Status ReadFactor() const {
    WEFT_ASSIGN_OR_RETURN(rope->factor, settings.GetFloat("factor"));
    return absl::OkStatus();
  }

  // transformers' order: beside the settings, inside, the longest context.
  absl::Status ReadOriginal() const {
    const HfObject& in = root.Has(kOriginal) || !settings.Has(kOriginal) ? root : settings;
    WEFT_ASSIGN_OR_RETURN(rope->original_context_tokens,
                          in.GetUint(in.Has(kOriginal) ? kOriginal : "max_position_embeddings"));
    return absl::OkStatus();
  }

  // How much longer the context is than the original.
  absl::Status ReadFactorOr(bool* longer) const {
    WEFT_ASSIGN_OR_RETURN(const uint32_t context, root.GetUint("max_position_embeddings"));
    *longer = context > rope->original_context_tokens;
    const auto original = static_cast<float>(rope->original_context_tokens);
    WEFT_ASSIGN_OR_RETURN(rope->factor,
                          settings.GetFloatOr("factor", static_cast<float>(context) / original));
    return absl::OkStatus();
  }

  absl::Status Llama3() const {
    rope->scaling = RopeScalingKind::kLlama3;
    WEFT_RETURN_IF_ERROR(ReadFactor());
    WEFT_ASSIGN_OR_RETURN(rope->low_freq_factor, settings.GetFloat("low_freq_factor"));
    WEFT_ASSIGN_OR_RETURN(rope->high_freq_factor, settings.GetFloat("high_freq_factor"));
    return ReadOriginal();
  }

  absl::Status Yarn() const {
    rope->scaling = RopeScalingKind::kYarn;
    bool longer = false;
    WEFT_RETURN_IF_ERROR(ReadOriginal());
    WEFT_RETURN_IF_ERROR(ReadFactorOr(&longer));
    WEFT_ASSIGN_OR_RETURN(rope->beta_fast, settings.GetFloatOr("beta_fast", rope->beta_fast));
    WEFT_ASSIGN_OR_RETURN(rope->beta_slow, settings.GetFloatOr("beta_slow", rope->beta_slow));
    WEFT_ASSIGN_OR_RETURN(rope->truncate, settings.GetBoolOr("truncate", true));
    WEFT_ASSIGN_OR_RETURN(const float scale, settings.GetFloatOr("mscale", 0.0f));
    WEFT_ASSIGN_OR_RETURN(const float all, settings.GetFloatOr("mscale_all_dim", 0.0f));
    const float usual = scale != 0 && all != 0
                            ? YarnAttention(rope->factor, scale) / YarnAttention(rope->factor, all)
                            : YarnAttention(rope->factor, 1.0f);
    WEFT_ASSIGN_OR_RETURN(rope->attention_factor, settings.GetFloatOr("attention_factor", usual));
    return absl::OkStatus();
  }

  // transformers takes the long factors for a sequence longer than the original context, and others
  // for the same tokens in a shorter one. Here a model has the one set for its context: rows do not
  // change with what comes after them.
  absl::Status Long() const {
    rope->scaling = RopeScalingKind::kFrequencyFactors;
    bool longer = false;
    WEFT_RETURN_IF_ERROR(ReadOriginal());
    if (rope->original_context_tokens < 2) {
      return settings.Bad(kOriginal, absl::StrCat("must be at least 2 with longrope, found ",
                                                  rope->original_context_tokens));
    }
    WEFT_RETURN_IF_ERROR(ReadFactorOr(&longer));
    const char* const key = longer ? "long_factor" : "short_factor";
    WEFT_ASSIGN_OR_RETURN(rope->frequency_factors, settings.GetFloats(key));
    if (rope->frequency_factors.size() != rope->dims / 2) {
      return settings.Bad(
          key, absl::StrCat("expected ", rope->dims / 2, " numbers (half of the ", rope->dims,
                            " rotary dimensions), found ", rope->frequency_factors.size()));
    }
    WEFT_ASSIGN_OR_RETURN(
        rope->attention_factor,
        settings.GetFloatOr("attention_factor",
                            LongAttention(rope->factor, rope->original_context_tokens)));
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status RopeFromSettings(const HfObject& root, const HfObject& settings, RopeSpec* rope) {
  WEFT_ASSIGN_OR_RETURN(rope->theta, settings.GetFloatOr("rope_theta", rope->theta));
  const char* const type_key = TypeKey(settings);
  WEFT_ASSIGN_OR_RETURN(const std::string type, settings.GetStringOr(type_key, "default"));
  const HfRope read = {root, settings, rope};
  if (type == "default") return absl::OkStatus();
  // Scales from the end of the context on, which is where weft's sequences end.
  if (type == "dynamic") return read.ReadFactor();
  if (type == "linear") {
    rope->scaling = RopeScalingKind::kLinear;
    return read.ReadFactor();
  }
  if (type == "llama3") return read.Llama3();
  // The first Phi-3 files call longrope so.
  if (type == "longrope" || type == "su" || (type == "yarn" && settings.Has("long_factor"))) {
    return read.Long();
  }
  if (type == "yarn") return read.Yarn();
  return Unsupported(settings.Where(type_key),
                     absl::StrCat("\"", type,
                                  "\" is not supported; known are: default, linear, dynamic, "
                                  "llama3, yarn, longrope"));
}

absl::StatusOr<float> YarnScoreScale(const HfObject& root, const RopeSpec& rope) {
  const char* const key = ScalingKey(root);
  if (!root.Has(key)) return 1.0f;
  WEFT_ASSIGN_OR_RETURN(const HfObject settings, root.GetObject(key));
  WEFT_ASSIGN_OR_RETURN(const std::string type, settings.GetStringOr(TypeKey(settings), "default"));
  WEFT_ASSIGN_OR_RETURN(const float all, settings.GetFloatOr("mscale_all_dim", 0.0f));
  if (type == "default" || all == 0) return 1.0f;
  const float scale = YarnAttention(rope.factor, all);
  if (scale > 0 && std::isfinite(scale)) return scale * scale;
  return settings.Bad("mscale_all_dim", "gives no positive factor");
}

absl::Status RopeFromHf(const HfObject& root, RopeSpec* rope) {
  const char* const scaling_key = ScalingKey(root);
  WEFT_ASSIGN_OR_RETURN(rope->theta, root.GetFloatOr("rope_theta", 10000.0f));
  if (!root.Has(scaling_key)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const HfObject settings, root.GetObject(scaling_key));
  return RopeFromSettings(root, settings, rope);
}

}  // namespace weft::shard

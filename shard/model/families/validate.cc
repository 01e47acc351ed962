#include "shard/model/families/validate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::shard {
namespace {

template <typename... Parts>
absl::Status Bad(const std::string& where, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", parts...));
}

absl::Status CheckSizes(const DecoderSpec& spec, const SpecKeys& keys) {
  const struct {
    const std::string& where;
    uint32_t value;
    uint32_t max;
  } sizes[] = {
      {keys.layers, spec.layers, kLayersMax},
      {keys.hidden, spec.hidden, kHiddenMax},
      {keys.heads, spec.heads, kHiddenMax},
      {keys.kv_heads, spec.kv_heads, spec.heads},
      {keys.head_dim, spec.head_dim, kHeadDimMax},
      {keys.mlp_hidden, spec.mlp_hidden, 4 * kHiddenMax},
      {keys.vocab, spec.vocab, kVocabMax},
      {keys.context_tokens, spec.context_tokens, kContextTokensMax},
  };
  for (const auto& size : sizes) {
    if (size.value == 0 || size.value > size.max) {
      return Bad(size.where, "must be from 1 to ", size.max, ", found ", size.value);
    }
  }
  // Kernels take the dimensions of heads in pairs.
  if (spec.head_dim % 2 != 0) {
    return Bad(keys.head_dim, "the size of a head must be even, found ", spec.head_dim);
  }
  if (spec.heads % spec.kv_heads != 0) {
    return Bad(keys.kv_heads, "must divide the ", spec.heads, " attention heads, found ",
               spec.kv_heads);
  }
  return absl::OkStatus();
}

// A base or a factor below 1 would make frequencies grow with the dimension or the context, and
// small enough ones make them infinite.
bool IsAtLeastOne(float value) { return value >= 1 && std::isfinite(value); }

absl::Status CheckOriginalContext(const RopeSpec& rope, const SpecKeys& keys) {
  if (rope.original_context_tokens == 0 || rope.original_context_tokens > kContextTokensMax) {
    return Bad(absl::StrCat(keys.rope_scaling, "original_max_position_embeddings"),
               "must be from 1 to ", kContextTokensMax, ", found ", rope.original_context_tokens);
  }
  return absl::OkStatus();
}

absl::Status CheckLlama3(const RopeSpec& rope, const SpecKeys& keys) {
  if (!(rope.low_freq_factor > 0)) {
    return Bad(absl::StrCat(keys.rope_scaling, "low_freq_factor"), "must be above 0, found ",
               rope.low_freq_factor);
  }
  if (!(rope.high_freq_factor > rope.low_freq_factor)) {
    return Bad(absl::StrCat(keys.rope_scaling, "high_freq_factor"),
               "must be above low_freq_factor ", rope.low_freq_factor, ", found ",
               rope.high_freq_factor);
  }
  return CheckOriginalContext(rope, keys);
}

// The range between the two speeds of rotation is found by a logarithm of the base.
absl::Status CheckYarn(const RopeSpec& rope, const SpecKeys& keys) {
  if (rope.theta == 1) return Bad(keys.rope_theta, "must be above 1 with yarn, found 1");
  if (!(rope.beta_slow > 0)) {
    return Bad(absl::StrCat(keys.rope_scaling, "beta_slow"), "must be above 0, found ",
               rope.beta_slow);
  }
  if (!(rope.beta_fast >= rope.beta_slow && std::isfinite(rope.beta_fast))) {
    return Bad(absl::StrCat(keys.rope_scaling, "beta_fast"), "must be at least beta_slow ",
               rope.beta_slow, ", found ", rope.beta_fast);
  }
  return CheckOriginalContext(rope, keys);
}

absl::Status CheckRope(const RopeSpec& rope, uint32_t head_dim, const SpecKeys& keys) {
  if (rope.dims == 0 || rope.dims > head_dim) {
    return Bad(keys.rope_dims, "must be from 1 to ", head_dim, ", found ", rope.dims);
  }
  if (rope.dims % 2 != 0) {
    return Bad(keys.rope_dims, "the rotary dimensions must be even, found ", rope.dims);
  }
  if (!IsAtLeastOne(rope.theta)) {
    return Bad(keys.rope_theta, "must be a finite number of at least 1, found ", rope.theta);
  }
  if (!IsAtLeastOne(rope.factor)) {
    return Bad(absl::StrCat(keys.rope_scaling, "factor"),
               "must be a finite number of at least 1, found ", rope.factor);
  }
  for (const float factor : rope.frequency_factors) {
    if (!(factor > 0 && std::isfinite(factor))) {
      return Bad(keys.rope_factors, "expected positive finite numbers, found ", factor);
    }
  }
  if (!(rope.attention_factor > 0 && std::isfinite(rope.attention_factor))) {
    return Bad(absl::StrCat(keys.rope_scaling, "attention_factor"),
               "must be a finite number above 0, found ", rope.attention_factor);
  }
  if (rope.scaling == RopeScalingKind::kLlama3) return CheckLlama3(rope, keys);
  if (rope.scaling == RopeScalingKind::kYarn) return CheckYarn(rope, keys);
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSpec(const DecoderSpec& spec, const SpecKeys& keys) {
  WEFT_RETURN_IF_ERROR(CheckSizes(spec, keys));
  // What a family's own code is to keep; keys of files cannot break it.
  for (const AttentionKind& kind : spec.attention_kinds) {
    WEFT_CHECK(spec.position == PositionKind::kRotary || kind.rope.dims == 0);
  }
  WEFT_CHECK(spec.position != PositionKind::kLearned ||
             uint64_t{spec.context_tokens} + spec.position_offset <= spec.position_rows);
  WEFT_CHECK(!spec.shared_norm || spec.parallel_residual);
  WEFT_CHECK(!spec.residual_norms || !spec.parallel_residual);
  WEFT_CHECK(spec.experts.count == 0 || (spec.gated_mlp && !spec.parallel_residual));
  WEFT_CHECK(spec.experts.plain_layers.empty() || spec.experts.plain_layers.size() == spec.layers);
  if (!(spec.norm_epsilon > 0 && spec.norm_epsilon < 1)) {
    return Bad(keys.norm_epsilon, "must be above 0 and below 1, found ", spec.norm_epsilon);
  }
  if (spec.position != PositionKind::kRotary) return absl::OkStatus();
  for (const AttentionKind& kind : spec.attention_kinds) {
    WEFT_RETURN_IF_ERROR(CheckRope(kind.rope, spec.head_dim, keys));
  }
  return absl::OkStatus();
}

}  // namespace weft::shard

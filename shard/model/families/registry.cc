#include "shard/model/families/registry.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/model/families/llama.h"

namespace weft::shard {
namespace {

struct Family {
  // The same in model_type and general.architecture so far.
  const char* name;
  absl::StatusOr<ModelDescription> (*from_hf)(const HfConfig&);
  absl::StatusOr<ModelDescription> (*from_gguf)(const GgufFile&);
};

constexpr Family kFamilies[] = {
    {"llama", LlamaFromHf, LlamaFromGguf},
};

absl::StatusOr<const Family*> FindFamily(const std::string& name, absl::string_view where) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return absl::UnimplementedError(
      absl::StrCat(where, ": \"", name, "\" is not a known model family; known are: ",
                   absl::StrJoin(kFamilies, ", ", [](std::string* out, const Family& family) {
                     absl::StrAppend(out, family.name);
                   })));
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeHfModel(const HfConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, config.root().GetString("model_type"));
  WEFT_ASSIGN_OR_RETURN(const Family* const family,
                        FindFamily(name, config.root().Where("model_type")));
  return family->from_hf(config);
}

absl::StatusOr<ModelDescription> DescribeGgufModel(const GgufFile& file) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view name, file.GetString("general.architecture"));
  WEFT_ASSIGN_OR_RETURN(
      const Family* const family,
      FindFamily(std::string(name), absl::StrCat(file.path(), ": general.architecture")));
  return family->from_gguf(file);
}

absl::Status ValidateSpec(const DecoderSpec& spec, const std::string& where) {
  const auto bad = [&where](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", parts...));
  };
  const struct {
    const char* name;
    uint32_t value;
    uint32_t max;
  } sizes[] = {
      {"layers", spec.layers, kLayersMax},
      {"hidden size", spec.hidden, kHiddenMax},
      {"attention heads", spec.heads, kHiddenMax},
      {"key-value heads", spec.kv_heads, spec.heads},
      {"head size", spec.head_dim, kHeadDimMax},
      {"MLP hidden size", spec.mlp_hidden, 4 * kHiddenMax},
      {"vocabulary", spec.vocab, kVocabMax},
      {"context length", spec.context_tokens, kContextTokensMax},
      {"rotary dimensions", spec.rope.dims, spec.head_dim},
  };
  for (const auto& size : sizes) {
    if (size.value == 0 || size.value > size.max) {
      return bad("the ", size.name, " must be from 1 to ", size.max, ", found ", size.value);
    }
  }
  if (spec.heads % spec.kv_heads != 0) {
    return bad("the ", spec.heads, " attention heads are no multiple of the ", spec.kv_heads,
               " key-value heads");
  }
  if (spec.rope.dims % 2 != 0) {
    return bad("the rotary dimensions must be even, found ", spec.rope.dims);
  }
  if (!(spec.norm_epsilon > 0 && spec.norm_epsilon < 1)) {
    return bad("the norm epsilon must be between 0 and 1, found ", spec.norm_epsilon);
  }
  if (!(spec.rope.theta > 0 && std::isfinite(spec.rope.theta))) {
    return bad("the rotary base must be positive, found ", spec.rope.theta);
  }
  if (!(spec.rope.factor > 0 && std::isfinite(spec.rope.factor))) {
    return bad("the rotary scaling factor must be positive, found ", spec.rope.factor);
  }
  const auto& rope = spec.rope;
  if (rope.scaling == RopeScalingKind::kLlama3 &&
      !(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor &&
        rope.original_context_tokens > 0)) {
    return bad(
        "llama3 rotary scaling needs 0 < low_freq_factor < high_freq_factor and "
        "original_max_position_embeddings > 0; found ",
        rope.low_freq_factor, ", ", rope.high_freq_factor, " and ", rope.original_context_tokens);
  }
  for (const float factor : rope.frequency_factors) {
    if (!(factor > 0 && std::isfinite(factor))) {
      return bad("rope_freqs.weight holds ", factor, "; expected positive numbers");
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::shard

#include "shard/model/families/hf_family.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/validate.h"

namespace weft::shard {
namespace {

// The one of "new|old" that is there, the first if none is.
std::string Pick(const HfObject& root, absl::string_view keys) {
  const std::vector<std::string> all = absl::StrSplit(keys, '|');
  for (const std::string& key : all) {
    if (root.Has(key)) return key;
  }
  return all[0];
}

SpecKeys KeysOf(const HfFamily& family, const HfObject& root) {
  const auto where = [&root](const char* key, const char* otherwise) {
    return root.Where(Pick(root, key != nullptr ? key : otherwise));
  };
  SpecKeys keys;
  keys.layers = where(family.keys.layers, "");
  keys.hidden = where(family.keys.hidden, "");
  keys.heads = where(family.keys.heads, "");
  keys.kv_heads = where(family.keys.kv_heads, family.keys.heads);
  keys.head_dim = where(family.keys.head_dim, family.keys.heads);
  keys.mlp_hidden = where(family.keys.mlp_hidden, family.keys.hidden);
  keys.vocab = root.Where("vocab_size");
  keys.context_tokens = where(family.keys.context_tokens, "max_position_embeddings");
  keys.norm_epsilon = where(family.keys.norm_epsilon, "layer_norm_eps");
  keys.rope_dims = root.Where("partial_rotary_factor");
  keys.rope_theta = root.Where("rope_theta");
  keys.rope_scaling =
      root.Where(root.Has("rope_parameters") ? "rope_parameters." : "rope_scaling.");
  keys.rope_factors = absl::StrCat(keys.rope_scaling, "long_factor or short_factor");
  return keys;
}

absl::Status ReadSizes(const HfFamily& family, const HfObject& root, DecoderSpec* spec) {
  const HfSizeKeys& keys = family.keys;
  WEFT_ASSIGN_OR_RETURN(spec->layers, root.GetUint(Pick(root, keys.layers)));
  WEFT_ASSIGN_OR_RETURN(spec->hidden, root.GetUint(Pick(root, keys.hidden)));
  const std::string heads = Pick(root, keys.heads);
  WEFT_ASSIGN_OR_RETURN(spec->heads, root.GetUint(heads));
  if (keys.head_dim != nullptr && root.Has(keys.head_dim)) {
    WEFT_ASSIGN_OR_RETURN(spec->head_dim, root.GetUint(keys.head_dim));
  } else if (spec->heads == 0 || spec->hidden % spec->heads != 0) {
    return root.Bad(heads, absl::StrCat("must divide ", Pick(root, keys.hidden), " ", spec->hidden,
                                        ", found ", spec->heads));
  } else {
    spec->head_dim = spec->hidden / spec->heads;
  }
  spec->kv_heads = spec->heads;
  if (keys.kv_heads != nullptr) {
    WEFT_ASSIGN_OR_RETURN(spec->kv_heads, root.GetUintOr(keys.kv_heads, spec->heads));
  }
  // Above what ValidateSpec allows either way, and without a wrap.
  spec->mlp_hidden = static_cast<uint32_t>(std::min<uint64_t>(4 * uint64_t{spec->hidden}, ~0u));
  if (keys.mlp_hidden != nullptr) {
    WEFT_ASSIGN_OR_RETURN(spec->mlp_hidden, root.GetUintOr(keys.mlp_hidden, spec->mlp_hidden));
  }
  WEFT_ASSIGN_OR_RETURN(spec->vocab, root.GetUint("vocab_size"));
  if (keys.context_tokens != nullptr) {
    WEFT_ASSIGN_OR_RETURN(spec->context_tokens, root.GetUint(Pick(root, keys.context_tokens)));
  }
  spec->norm_epsilon = family.norm_epsilon_default;
  if (keys.norm_epsilon != nullptr) {
    WEFT_ASSIGN_OR_RETURN(spec->norm_epsilon,
                          root.GetFloatOr(keys.norm_epsilon, family.norm_epsilon_default));
  }
  WEFT_ASSIGN_OR_RETURN(spec->tied_head,
                        root.GetBoolOr("tie_word_embeddings", family.tied_head_default));
  return absl::OkStatus();
}

const char* HeadName(absl::Span<const TensorName> tensors) {
  for (const TensorName& row : tensors) {
    if (row.kind == ParamKind::kHead) return row.name;
  }
  return "lm_head.weight";
}

}  // namespace

absl::StatusOr<ModelDescription> ReadHfFamily(const HfFamily& family, const HfConfig& config) {
  const HfObject root = config.root();
  WEFT_RETURN_IF_ERROR(RefuseOtherModels(root, family.architecture));
  ModelDescription out;
  DecoderSpec& spec = out.spec;
  spec.family = family.name;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.gated_mlp = false;
  WEFT_RETURN_IF_ERROR(ReadSizes(family, root, &spec));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  WEFT_RETURN_IF_ERROR(family.finish(root, &spec));
  WEFT_RETURN_IF_ERROR(ValidateSpec(spec, KeysOf(family, root)));
  WEFT_ASSIGN_OR_RETURN(spec.eos_ids, EosFromHf(config, spec.vocab));
  out.params =
      NameTensors(spec, Joined(family.own_tensors, family.tensors), family.query_key_order);
  out.optional_prefix = family.optional_prefix;
  for (const char* const name : family.unused) out.unused.push_back(name);
  if (spec.tied_head) out.tied_head_name = HeadName(family.tensors);
  return out;
}

}  // namespace weft::shard

#include "shard/model/families/llama_like.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/model/families/hf_checks.h"
#include "shard/model/families/llama_tensors.h"
#include "shard/model/families/rope_keys.h"
#include "shard/model/families/validate.h"

namespace weft::shard {
namespace {

// Of GGUF files.
constexpr const char kEmbedding[] = "token_embd.weight";
constexpr const char kHead[] = "output.weight";

// A GGUF integer that must fit uint32; `otherwise` when absent, unless that is negative.
absl::StatusOr<uint32_t> GgufUint(const GgufFile& file, const std::string& key,
                                  int64_t otherwise = -1) {
  if (!file.Has(key) && otherwise >= 0) return static_cast<uint32_t>(otherwise);
  WEFT_ASSIGN_OR_RETURN(const uint64_t value, file.GetUint(key));
  if (value > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": key \"", key, "\" is too large: ", value));
  }
  return static_cast<uint32_t>(value);
}

// "<architecture>.<name>", and the same behind the file's name for messages.
struct GgufKeys {
  const GgufFile& file;
  const char* architecture;

  std::string Key(absl::string_view name) const { return absl::StrCat(architecture, ".", name); }
  std::string Where(absl::string_view name) const {
    return absl::StrCat(file.path(), ": ", Key(name));
  }
  // An integer that must fit uint32; `otherwise` when absent, unless that is negative.
  absl::StatusOr<uint32_t> Uint(absl::string_view name, int64_t otherwise = -1) const {
    return GgufUint(file, Key(name), otherwise);
  }
};

absl::Status RefuseUnsupported(const LlamaLike& family, const HfObject& root) {
  WEFT_ASSIGN_OR_RETURN(const std::string act, root.GetStringOr("hidden_act", "silu"));
  if (act != "silu") {
    return Unsupported(root.Where("hidden_act"),
                       absl::StrCat("\"", act, "\" is not supported; known is: silu"));
  }
  WEFT_ASSIGN_OR_RETURN(const float rotated,
                        RotaryShareFromHf(root, "partial_rotary_factor", 1.0f));
  if (rotated != 1.0f) {
    return Unsupported(root.Where("partial_rotary_factor"),
                       absl::StrCat(rotated, " is not supported; expected 1"));
  }
  return RefuseOtherModels(root, family.architecture);
}

absl::Status RefuseUnsupported(const GgufKeys& keys) {
  const GgufFile& file = keys.file;
  for (const char* key : {"expert_count", "attention.sliding_window"}) {
    WEFT_ASSIGN_OR_RETURN(const uint32_t value, keys.Uint(key, 0));
    if (value != 0) {
      return Unsupported(keys.Where(key), absl::StrCat(value, " is not supported; expected 0"));
    }
  }
  if (file.Has(keys.Key("rope.scale_linear"))) {
    return Unsupported(keys.Where("rope.scale_linear"),
                       "this old key is not supported; convert the model again");
  }
  if (file.Has(keys.Key("attention.causal"))) {
    WEFT_ASSIGN_OR_RETURN(const bool causal, file.GetBool(keys.Key("attention.causal")));
    if (!causal) {
      return Unsupported(keys.Where("attention.causal"),
                         "false is not supported: weft serves decoders");
    }
  }
  return absl::OkStatus();
}

SpecKeys KeysOf(const HfObject& root) {
  const std::string scaling = root.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const absl::StatusOr<HfObject> inside = root.GetObject(scaling);
  SpecKeys keys;
  keys.layers = root.Where("num_hidden_layers");
  keys.hidden = root.Where("hidden_size");
  keys.heads = root.Where("num_attention_heads");
  keys.kv_heads = root.Where("num_key_value_heads");
  keys.head_dim = root.Where("head_dim");
  keys.mlp_hidden = root.Where("intermediate_size");
  keys.vocab = root.Where("vocab_size");
  keys.context_tokens = root.Where("max_position_embeddings");
  keys.norm_epsilon = root.Where("rms_norm_eps");
  keys.rope_dims = keys.head_dim;
  keys.rope_theta = (inside.ok() && inside->Has("rope_theta") ? *inside : root).Where("rope_theta");
  keys.rope_scaling = root.Where(absl::StrCat(scaling, "."));
  return keys;
}

SpecKeys KeysOf(const GgufKeys& names) {
  const auto key = [&names](const char* name) { return names.Where(name); };
  SpecKeys keys;
  keys.layers = key("block_count");
  keys.hidden = key("embedding_length");
  keys.heads = key("attention.head_count");
  keys.kv_heads = key("attention.head_count_kv");
  keys.head_dim = key("attention.key_length");
  keys.mlp_hidden = key("feed_forward_length");
  keys.vocab = key("vocab_size");
  keys.context_tokens = key("context_length");
  keys.norm_epsilon = key("attention.layer_norm_rms_epsilon");
  keys.rope_dims = key("rope.dimension_count");
  keys.rope_theta = key("rope.freq_base");
  keys.rope_scaling = key("rope.scaling.");
  keys.rope_factors = absl::StrCat(names.file.path(), ": tensor rope_freqs.weight");
  return keys;
}

absl::StatusOr<std::vector<uint32_t>> EosFromGguf(const GgufFile& file, uint32_t vocab) {
  std::vector<uint32_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (!file.Has(key)) continue;
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, GgufUint(file, key));
    if (id >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path(), ": ", key, ": must be a token id from 0 to ", vocab - 1, ", found ", id));
    }
    if (!absl::c_linear_search(ids, id)) ids.push_back(id);
  }
  return ids;
}

}  // namespace

absl::StatusOr<ModelDescription> LlamaLikeFromHf(const LlamaLike& family, const HfConfig& config) {
  const HfObject root = config.root();
  WEFT_RETURN_IF_ERROR(RefuseUnsupported(family, root));
  ModelDescription out;
  DecoderSpec& spec = out.spec;
  spec.family = family.name;
  WEFT_ASSIGN_OR_RETURN(spec.layers, root.GetUint("num_hidden_layers"));
  WEFT_ASSIGN_OR_RETURN(spec.hidden, root.GetUint("hidden_size"));
  WEFT_ASSIGN_OR_RETURN(spec.heads, root.GetUint("num_attention_heads"));
  WEFT_ASSIGN_OR_RETURN(
      spec.kv_heads,
      root.GetUintOr("num_key_value_heads",
                     family.kv_heads_default != 0 ? family.kv_heads_default : spec.heads));
  if (!root.Has("head_dim") && spec.heads != 0 && spec.hidden % spec.heads != 0) {
    return root.Bad("head_dim",
                    absl::StrCat("is missing, and hidden_size ", spec.hidden,
                                 " is no multiple of num_attention_heads ", spec.heads));
  }
  WEFT_ASSIGN_OR_RETURN(spec.head_dim,
                        root.GetUintOr("head_dim", spec.hidden / std::max(spec.heads, 1u)));
  WEFT_ASSIGN_OR_RETURN(spec.mlp_hidden, root.GetUint("intermediate_size"));
  WEFT_ASSIGN_OR_RETURN(spec.vocab, root.GetUint("vocab_size"));
  WEFT_ASSIGN_OR_RETURN(spec.context_tokens, root.GetUint("max_position_embeddings"));
  WEFT_ASSIGN_OR_RETURN(spec.norm_epsilon, root.GetFloatOr("rms_norm_eps", 1e-6f));
  WEFT_ASSIGN_OR_RETURN(spec.tied_head, root.GetBoolOr("tie_word_embeddings", false));
  RopeSpec& rope = spec.attention_kinds[0].rope;
  rope.dims = spec.head_dim;
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &rope));
  WEFT_RETURN_IF_ERROR(family.finish_hf(root, &spec));
  WEFT_RETURN_IF_ERROR(ValidateSpec(spec, KeysOf(root)));
  WEFT_ASSIGN_OR_RETURN(spec.eos_ids, EosFromHf(config, spec.vocab));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  out.params = NameTensors(spec, kLlamaHfNames);
  out.unused = {"*.rotary_emb.inv_freq"};
  if (spec.tied_head) out.unused.push_back("lm_head.weight");
  return out;
}

absl::StatusOr<ModelDescription> LlamaLikeFromGguf(const LlamaLike& family, const GgufFile& file) {
  const GgufKeys keys{file, family.name};
  WEFT_RETURN_IF_ERROR(RefuseUnsupported(keys));
  const GgufTensor* const embedding = file.FindTensor(kEmbedding);
  if (embedding == nullptr || embedding->dims.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": tensor ", kEmbedding, ": expected a matrix, found ",
                     embedding == nullptr ? "no such tensor" : "another number of dimensions"));
  }
  ModelDescription out;
  DecoderSpec& spec = out.spec;
  spec.family = family.name;
  WEFT_ASSIGN_OR_RETURN(spec.layers, keys.Uint("block_count"));
  WEFT_ASSIGN_OR_RETURN(spec.hidden, keys.Uint("embedding_length"));
  WEFT_ASSIGN_OR_RETURN(spec.heads, keys.Uint("attention.head_count"));
  WEFT_ASSIGN_OR_RETURN(spec.kv_heads, keys.Uint("attention.head_count_kv", spec.heads));
  const uint32_t even_head = spec.hidden / std::max(spec.heads, 1u);
  if (!file.Has(keys.Key("attention.key_length")) && even_head * spec.heads != spec.hidden &&
      spec.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        keys.Where("attention.key_length"), ": is missing, and ", keys.Key("embedding_length"), " ",
        spec.hidden, " is no multiple of ", keys.Key("attention.head_count"), " ", spec.heads));
  }
  WEFT_ASSIGN_OR_RETURN(spec.head_dim, keys.Uint("attention.key_length", even_head));
  WEFT_ASSIGN_OR_RETURN(const uint32_t value_dim,
                        keys.Uint("attention.value_length", spec.head_dim));
  if (value_dim != spec.head_dim) {
    return Unsupported(
        keys.Where("attention.value_length"),
        absl::StrCat(value_dim, " is not supported beside a key_length of ", spec.head_dim));
  }
  WEFT_ASSIGN_OR_RETURN(spec.mlp_hidden, keys.Uint("feed_forward_length"));
  if (embedding->dims[1] > kVocabMax) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", kEmbedding, ": ",
                                                   embedding->dims[1], " rows are more than ",
                                                   kVocabMax));
  }
  WEFT_ASSIGN_OR_RETURN(spec.vocab,
                        keys.Uint("vocab_size", static_cast<int64_t>(embedding->dims[1])));
  WEFT_ASSIGN_OR_RETURN(spec.context_tokens, keys.Uint("context_length"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon,
                        file.GetFloat(keys.Key("attention.layer_norm_rms_epsilon")));
  spec.norm_epsilon = static_cast<float>(epsilon);
  // No key tells of a separate head or of biases: the tensors themselves do.
  spec.tied_head = file.FindTensor(kHead) == nullptr;
  spec.qkv_bias = file.FindTensor("blk.0.attn_q.bias") != nullptr;
  spec.output_bias = file.FindTensor("blk.0.attn_output.bias") != nullptr;
  spec.mlp_bias = file.FindTensor("blk.0.ffn_gate.bias") != nullptr;
  spec.head_norms = file.FindTensor("blk.0.attn_q_norm.weight") != nullptr;
  RopeSpec& rope = spec.attention_kinds[0].rope;
  WEFT_ASSIGN_OR_RETURN(rope.dims, keys.Uint("rope.dimension_count", spec.head_dim));
  WEFT_RETURN_IF_ERROR(RopeFromGguf(file, family.name, &rope));
  WEFT_RETURN_IF_ERROR(ValidateSpec(spec, KeysOf(keys)));
  WEFT_ASSIGN_OR_RETURN(spec.eos_ids, EosFromGguf(file, spec.vocab));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  out.params = NameTensors(spec, kLlamaGgufNames, family.gguf_query_key_order);
  out.unused = {"rope_freqs.weight"};
  return out;
}

}  // namespace weft::shard

#include "shard/model/families/gguf_family.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/model/families/expert_keys.h"
#include "shard/model/families/rope_keys.h"
#include "shard/model/families/validate.h"

namespace weft::shard {
namespace {

constexpr const char kEmbedding[] = "token_embd.weight";

constexpr TensorName kTensors[] = {
    {ParamKind::kTokenEmbedding, kEmbedding},
    {ParamKind::kPositionEmbedding, "position_embd.weight"},
    {ParamKind::kEmbeddingNorm, "token_embd_norm.weight"},
    {ParamKind::kEmbeddingNormBias, "token_embd_norm.bias"},
    {ParamKind::kAttentionNorm, "blk.*.attn_norm.weight"},
    {ParamKind::kAttentionNormBias, "blk.*.attn_norm.bias"},
    {ParamKind::kQuery, "blk.*.attn_q.weight"},
    {ParamKind::kKey, "blk.*.attn_k.weight"},
    {ParamKind::kValue, "blk.*.attn_v.weight"},
    {ParamKind::kOutput, "blk.*.attn_output.weight"},
    {ParamKind::kQueryBias, "blk.*.attn_q.bias"},
    {ParamKind::kKeyBias, "blk.*.attn_k.bias"},
    {ParamKind::kValueBias, "blk.*.attn_v.bias"},
    {ParamKind::kOutputBias, "blk.*.attn_output.bias"},
    {ParamKind::kQueryNorm, "blk.*.attn_q_norm.weight"},
    {ParamKind::kKeyNorm, "blk.*.attn_k_norm.weight"},
    {ParamKind::kPostAttentionNorm, "blk.*.post_attention_norm.weight"},
    {ParamKind::kMlpNorm, "blk.*.ffn_norm.weight"},
    {ParamKind::kMlpNormBias, "blk.*.ffn_norm.bias"},
    {ParamKind::kGate, "blk.*.ffn_gate.weight"},
    {ParamKind::kUp, "blk.*.ffn_up.weight"},
    {ParamKind::kDown, "blk.*.ffn_down.weight"},
    {ParamKind::kGateBias, "blk.*.ffn_gate.bias"},
    {ParamKind::kUpBias, "blk.*.ffn_up.bias"},
    {ParamKind::kDownBias, "blk.*.ffn_down.bias"},
    {ParamKind::kPostMlpNorm, "blk.*.post_ffw_norm.weight"},
    {ParamKind::kRouter, "blk.*.ffn_gate_inp.weight"},
    {ParamKind::kExpertGate, "blk.*.ffn_gate_exps.weight"},
    {ParamKind::kExpertUp, "blk.*.ffn_up_exps.weight"},
    {ParamKind::kExpertDown, "blk.*.ffn_down_exps.weight"},
    {ParamKind::kSharedGate, "blk.*.ffn_gate_shexp.weight"},
    {ParamKind::kSharedUp, "blk.*.ffn_up_shexp.weight"},
    {ParamKind::kSharedDown, "blk.*.ffn_down_shexp.weight"},
    {ParamKind::kSharedScale, "blk.*.ffn_gate_inp_shexp.weight"},
    {ParamKind::kFinalNorm, "output_norm.weight"},
    {ParamKind::kFinalNormBias, "output_norm.bias"},
    {ParamKind::kHead, "output.weight"},
};

const char* EpsilonKey(NormKind norm) {
  return norm == NormKind::kRmsNorm ? "attention.layer_norm_rms_epsilon"
                                    : "attention.layer_norm_epsilon";
}

absl::Status RefuseUnsupported(const GgufFamily& family, const GgufKeys& keys) {
  for (const char* key : {"expert_count", "attention.sliding_window"}) {
    WEFT_ASSIGN_OR_RETURN(const uint32_t value, keys.UintOr(key, 0));
    if (value == 0 || (family.reads_window && key[0] == 'a')) continue;
    if (family.experts != GgufExperts::kNone && key[0] == 'e') continue;
    return Unsupported(keys.Where(key), absl::StrCat(value, " is not supported; expected 0"));
  }
  if (keys.Has("rope.scale_linear")) {
    return Unsupported(keys.Where("rope.scale_linear"),
                       "this old key is not supported; convert the model again");
  }
  WEFT_ASSIGN_OR_RETURN(const bool causal, keys.BoolOr("attention.causal", true));
  if (causal) return absl::OkStatus();
  return Unsupported(keys.Where("attention.causal"),
                     "false is not supported: weft serves decoders");
}

SpecKeys KeysOf(const GgufFamily& family, const GgufKeys& names) {
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
  keys.norm_epsilon = key(EpsilonKey(family.norm));
  keys.rope_dims = key("rope.dimension_count");
  keys.rope_theta = key("rope.freq_base");
  keys.rope_scaling = key("rope.scaling.");
  keys.rope_factors = absl::StrCat(names.file().path(), ": tensor rope_freqs.weight");
  return keys;
}

absl::StatusOr<std::vector<uint32_t>> EndIds(const GgufFile& file, uint32_t vocab) {
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

absl::Status ReadHeads(const GgufKeys& keys, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(spec->heads, keys.Uint("attention.head_count"));
  WEFT_ASSIGN_OR_RETURN(spec->kv_heads, keys.UintOr("attention.head_count_kv", spec->heads));
  const uint32_t even_head = spec->hidden / std::max(spec->heads, 1u);
  if (!keys.Has("attention.key_length") && even_head * spec->heads != spec->hidden &&
      spec->heads != 0) {
    return keys.Bad(
        "attention.key_length",
        absl::StrCat("is missing, and ", keys.Key("embedding_length"), " ", spec->hidden,
                     " is no multiple of ", keys.Key("attention.head_count"), " ", spec->heads));
  }
  WEFT_ASSIGN_OR_RETURN(spec->head_dim, keys.UintOr("attention.key_length", even_head));
  WEFT_ASSIGN_OR_RETURN(const uint32_t value_dim,
                        keys.UintOr("attention.value_length", spec->head_dim));
  if (value_dim == spec->head_dim) return absl::OkStatus();
  return Unsupported(
      keys.Where("attention.value_length"),
      absl::StrCat(value_dim, " is not supported beside a key_length of ", spec->head_dim));
}

absl::Status ReadSizes(const GgufFamily& family, const GgufKeys& keys, DecoderSpec* spec) {
  const GgufFile& file = keys.file();
  const GgufTensor* const embedding = file.FindTensor(kEmbedding);
  const std::string where = absl::StrCat(file.path(), ": tensor ", kEmbedding);
  if (embedding == nullptr || embedding->dims.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected a matrix, found ",
                     embedding == nullptr ? "no such tensor" : "another number of dimensions"));
  }
  WEFT_ASSIGN_OR_RETURN(spec->layers, keys.Uint("block_count"));
  WEFT_ASSIGN_OR_RETURN(spec->hidden, keys.Uint("embedding_length"));
  WEFT_RETURN_IF_ERROR(ReadHeads(keys, spec));
  WEFT_ASSIGN_OR_RETURN(spec->mlp_hidden, keys.Uint("feed_forward_length"));
  if (embedding->dims[1] > kVocabMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", embedding->dims[1], " rows are more than ", kVocabMax));
  }
  WEFT_ASSIGN_OR_RETURN(spec->vocab,
                        keys.UintOr("vocab_size", static_cast<uint32_t>(embedding->dims[1])));
  WEFT_ASSIGN_OR_RETURN(spec->context_tokens, keys.Uint("context_length"));
  WEFT_ASSIGN_OR_RETURN(spec->norm_epsilon, keys.Float(EpsilonKey(family.norm)));
  return absl::OkStatus();
}

// What only the presence of tensors tells.
void ReadPresence(const GgufFile& file, DecoderSpec* spec) {
  const auto has = [&file](const char* name) { return file.FindTensor(name) != nullptr; };
  spec->tied_head = !has("output.weight");
  spec->norm_bias = spec->norm == NormKind::kLayerNorm && has("output_norm.bias");
  spec->qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  spec->output_bias = has("blk.0.attn_output.bias");
  spec->mlp_bias = has("blk.0.ffn_up.bias");
  spec->head_norms = has("blk.0.attn_q_norm.weight");
}

absl::Status ReadPositions(const GgufFamily& family, const GgufKeys& keys, DecoderSpec* spec) {
  if (family.position == PositionKind::kLearned) spec->position_rows = spec->context_tokens;
  if (family.position != PositionKind::kRotary) return absl::OkStatus();
  RopeSpec& rope = spec->attention_kinds[0].rope;
  WEFT_ASSIGN_OR_RETURN(rope.dims, keys.UintOr("rope.dimension_count", spec->head_dim));
  return RopeFromGguf(keys, &rope);
}

}  // namespace

absl::StatusOr<ModelDescription> ReadGgufFamily(const GgufFamily& family, const GgufFile& file) {
  const GgufKeys keys(file, family.architecture);
  WEFT_RETURN_IF_ERROR(RefuseUnsupported(family, keys));
  ModelDescription out;
  DecoderSpec& spec = out.spec;
  spec.family = family.name;
  spec.norm = family.norm;
  spec.position = family.position;
  spec.activation = family.activation;
  spec.gated_mlp = family.gated_mlp;
  WEFT_RETURN_IF_ERROR(ReadSizes(family, keys, &spec));
  ReadPresence(file, &spec);
  WEFT_RETURN_IF_ERROR(ReadPositions(family, keys, &spec));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  if (family.experts != GgufExperts::kNone) {
    const bool renormalised = family.experts == GgufExperts::kRenormalised;
    WEFT_RETURN_IF_ERROR(ExpertsFromGguf(keys, renormalised, &spec));
  }
  if (family.finish != nullptr) WEFT_RETURN_IF_ERROR(family.finish(keys, &spec));
  WEFT_RETURN_IF_ERROR(ValidateSpec(spec, KeysOf(family, keys)));
  WEFT_ASSIGN_OR_RETURN(spec.eos_ids, EndIds(file, spec.vocab));
  out.params = NameTensors(spec, Joined(family.own_tensors, kTensors), family.query_key_order);
  for (ParamTensor& param : out.params) {
    // These files hold the one row as a vector.
    if (param.key.kind == ParamKind::kSharedScale) param.file.shape = {spec.hidden};
  }
  out.unused = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
  return out;
}

}  // namespace weft::shard

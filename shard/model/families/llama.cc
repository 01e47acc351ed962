#include "shard/model/families/llama.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/model/families/validate.h"

namespace weft::shard {
namespace {

// The names of one file format; layer tensors are "<layer_prefix><layer>.<name>.weight" (".bias").
struct Names {
  const char* embedding;
  const char* final_norm;
  const char* head;
  const char* layer_prefix;
  const char* attention_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* output;
  const char* mlp_norm;
  const char* gate;
  const char* up;
  const char* down;
  RowOrder query_key_order;
};

constexpr Names kHfNames = {"model.embed_tokens.weight",
                            "model.norm.weight",
                            "lm_head.weight",
                            "model.layers.",
                            "input_layernorm",
                            "self_attn.q_proj",
                            "self_attn.k_proj",
                            "self_attn.v_proj",
                            "self_attn.o_proj",
                            "post_attention_layernorm",
                            "mlp.gate_proj",
                            "mlp.up_proj",
                            "mlp.down_proj",
                            RowOrder::kPlain};

constexpr Names kGgufNames = {"token_embd.weight",
                              "output_norm.weight",
                              "output.weight",
                              "blk.",
                              "attn_norm",
                              "attn_q",
                              "attn_k",
                              "attn_v",
                              "attn_output",
                              "ffn_norm",
                              "ffn_gate",
                              "ffn_up",
                              "ffn_down",
                              RowOrder::kInterleavedRotary};

std::vector<ParamTensor> MakeParams(const DecoderSpec& spec, const Names& names) {
  const uint64_t hidden = spec.hidden;
  const uint64_t q = uint64_t{spec.heads} * spec.head_dim;
  const uint64_t kv = uint64_t{spec.kv_heads} * spec.head_dim;
  const uint64_t mlp = spec.mlp_hidden;
  std::vector<ParamTensor> out;
  out.push_back(
      {{ParamKind::kTokenEmbedding}, names.embedding, {spec.vocab, hidden}, Split::kVocabRows});
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    const auto add = [&](ParamKind kind, const char* name, const char* suffix,
                         std::vector<uint64_t> shape, Split split,
                         RowOrder order = RowOrder::kPlain) {
      out.push_back({{kind, layer},
                     absl::StrCat(names.layer_prefix, layer, ".", name, suffix),
                     std::move(shape),
                     split,
                     order});
    };
    const RowOrder rotary = names.query_key_order;
    add(ParamKind::kAttentionNorm, names.attention_norm, ".weight", {hidden}, Split::kWhole);
    add(ParamKind::kQuery, names.query, ".weight", {q, hidden}, Split::kHeadRows, rotary);
    add(ParamKind::kKey, names.key, ".weight", {kv, hidden}, Split::kKvHeadRows, rotary);
    add(ParamKind::kValue, names.value, ".weight", {kv, hidden}, Split::kKvHeadRows);
    add(ParamKind::kOutput, names.output, ".weight", {hidden, q}, Split::kHeadColumns);
    add(ParamKind::kMlpNorm, names.mlp_norm, ".weight", {hidden}, Split::kWhole);
    add(ParamKind::kGate, names.gate, ".weight", {mlp, hidden}, Split::kMlpRows);
    add(ParamKind::kUp, names.up, ".weight", {mlp, hidden}, Split::kMlpRows);
    add(ParamKind::kDown, names.down, ".weight", {hidden, mlp}, Split::kMlpColumns);
    if (spec.qkv_bias) {
      add(ParamKind::kQueryBias, names.query, ".bias", {q}, Split::kHeadRows, rotary);
      add(ParamKind::kKeyBias, names.key, ".bias", {kv}, Split::kKvHeadRows, rotary);
      add(ParamKind::kValueBias, names.value, ".bias", {kv}, Split::kKvHeadRows);
    }
    // What row-parallel matrices add is whole on every rank; the device adds it once.
    if (spec.output_bias) {
      add(ParamKind::kOutputBias, names.output, ".bias", {hidden}, Split::kWhole);
    }
    if (spec.mlp_bias) {
      add(ParamKind::kGateBias, names.gate, ".bias", {mlp}, Split::kMlpRows);
      add(ParamKind::kUpBias, names.up, ".bias", {mlp}, Split::kMlpRows);
      add(ParamKind::kDownBias, names.down, ".bias", {hidden}, Split::kWhole);
    }
  }
  out.push_back({{ParamKind::kFinalNorm}, names.final_norm, {hidden}, Split::kWhole});
  if (!spec.tied_head) {
    out.push_back({{ParamKind::kHead}, names.head, {spec.vocab, hidden}, Split::kVocabRows});
  }
  return out;
}

absl::Status Unsupported(std::string where, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(where, ": ", what));
}

absl::Status RefuseUnsupported(const HfObject& root) {
  WEFT_ASSIGN_OR_RETURN(const std::string act, root.GetStringOr("hidden_act", "silu"));
  if (act != "silu") {
    return Unsupported(root.Where("hidden_act"),
                       absl::StrCat("\"", act, "\" is not supported; known is: silu"));
  }
  WEFT_ASSIGN_OR_RETURN(const float rotated, root.GetFloatOr("partial_rotary_factor", 1.0f));
  if (rotated != 1.0f) {
    return Unsupported(root.Where("partial_rotary_factor"),
                       absl::StrCat(rotated, " is not supported; expected 1"));
  }
  if (root.Has("quantization_config")) {
    return Unsupported(root.Where("quantization_config"),
                       "quantised safetensors are not supported; use a checkpoint in F32, F16 or "
                       "BF16, or a GGUF file");
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> architectures,
                        root.GetStrings("architectures"));
  if (!architectures.empty() && !absl::c_linear_search(architectures, "LlamaForCausalLM")) {
    return Unsupported(
        root.Where("architectures"),
        absl::StrCat("\"", architectures[0], "\" is not supported; known is: LlamaForCausalLM"));
  }
  return absl::OkStatus();
}

// Rotary settings: rope_theta and rope_scaling as transformers 4 writes them, or both inside
// rope_parameters as transformers 5 does.
absl::Status RopeFromHf(const HfObject& root, RopeSpec* rope) {
  const char* const scaling_key = root.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  WEFT_ASSIGN_OR_RETURN(rope->theta, root.GetFloatOr("rope_theta", 10000.0f));
  if (!root.Has(scaling_key)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const HfObject scaling, root.GetObject(scaling_key));
  WEFT_ASSIGN_OR_RETURN(rope->theta, scaling.GetFloatOr("rope_theta", rope->theta));
  const char* const type_key = scaling.Has("rope_type") ? "rope_type" : "type";
  WEFT_ASSIGN_OR_RETURN(const std::string type, scaling.GetStringOr(type_key, "default"));
  WEFT_ASSIGN_OR_RETURN(const float rotated, scaling.GetFloatOr("partial_rotary_factor", 1.0f));
  if (rotated != 1.0f) {
    return Unsupported(scaling.Where("partial_rotary_factor"),
                       absl::StrCat(rotated, " is not supported; expected 1"));
  }
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

absl::Status RopeFromGguf(const GgufFile& file, RopeSpec* rope) {
  if (file.Has("llama.rope.freq_base")) {
    WEFT_ASSIGN_OR_RETURN(const double theta, file.GetFloat("llama.rope.freq_base"));
    rope->theta = static_cast<float>(theta);
  }
  std::string type = "none";
  if (file.Has("llama.rope.scaling.type")) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view text, file.GetString("llama.rope.scaling.type"));
    type = std::string(text);
  }
  if (type == "linear") {
    WEFT_ASSIGN_OR_RETURN(const double factor, file.GetFloat("llama.rope.scaling.factor"));
    rope->factor = static_cast<float>(factor);
    rope->scaling = RopeScalingKind::kLinear;
  } else if (type != "none") {
    return Unsupported(absl::StrCat(file.path(), ": llama.rope.scaling.type"),
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

absl::Status RefuseUnsupported(const GgufFile& file) {
  for (const char* key : {"llama.expert_count", "llama.attention.sliding_window"}) {
    WEFT_ASSIGN_OR_RETURN(const uint32_t value, GgufUint(file, key, 0));
    if (value != 0) {
      return Unsupported(absl::StrCat(file.path(), ": ", key),
                         absl::StrCat(value, " is not supported; expected 0"));
    }
  }
  if (file.Has("llama.rope.scale_linear")) {
    return Unsupported(absl::StrCat(file.path(), ": llama.rope.scale_linear"),
                       "this old key is not supported; convert the model again");
  }
  if (file.Has("llama.attention.causal")) {
    WEFT_ASSIGN_OR_RETURN(const bool causal, file.GetBool("llama.attention.causal"));
    if (!causal) {
      return Unsupported(absl::StrCat(file.path(), ": llama.attention.causal"),
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

SpecKeys KeysOf(const GgufFile& file) {
  const auto key = [&file](const char* name) {
    return absl::StrCat(file.path(), ": llama.", name);
  };
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
  keys.rope_factors = absl::StrCat(file.path(), ": tensor rope_freqs.weight");
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

absl::StatusOr<ModelDescription> LlamaFromHf(const HfConfig& config) {
  const HfObject root = config.root();
  WEFT_RETURN_IF_ERROR(RefuseUnsupported(root));
  ModelDescription out;
  DecoderSpec& spec = out.spec;
  spec.family = "llama";
  WEFT_ASSIGN_OR_RETURN(spec.layers, root.GetUint("num_hidden_layers"));
  WEFT_ASSIGN_OR_RETURN(spec.hidden, root.GetUint("hidden_size"));
  WEFT_ASSIGN_OR_RETURN(spec.heads, root.GetUint("num_attention_heads"));
  WEFT_ASSIGN_OR_RETURN(spec.kv_heads, root.GetUintOr("num_key_value_heads", spec.heads));
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
  WEFT_ASSIGN_OR_RETURN(spec.qkv_bias, root.GetBoolOr("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  WEFT_ASSIGN_OR_RETURN(spec.mlp_bias, root.GetBoolOr("mlp_bias", false));
  spec.rope.dims = spec.head_dim;
  WEFT_RETURN_IF_ERROR(RopeFromHf(root, &spec.rope));
  WEFT_RETURN_IF_ERROR(ValidateSpec(spec, KeysOf(root)));
  // generate() takes the end set of generation_config.json where there is one.
  const HfObject generation = config.generation();
  WEFT_ASSIGN_OR_RETURN(spec.eos_ids, (generation.Has("eos_token_id") ? generation : root)
                                          .GetUints("eos_token_id", spec.vocab - 1));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  out.params = MakeParams(spec, kHfNames);
  out.unused = {"*.rotary_emb.inv_freq"};
  if (spec.tied_head) out.unused.push_back(kHfNames.head);
  return out;
}

absl::StatusOr<ModelDescription> LlamaFromGguf(const GgufFile& file) {
  WEFT_RETURN_IF_ERROR(RefuseUnsupported(file));
  const GgufTensor* const embedding = file.FindTensor(kGgufNames.embedding);
  if (embedding == nullptr || embedding->dims.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": tensor ", kGgufNames.embedding, ": expected a matrix, found ",
                     embedding == nullptr ? "no such tensor" : "another number of dimensions"));
  }
  ModelDescription out;
  DecoderSpec& spec = out.spec;
  spec.family = "llama";
  WEFT_ASSIGN_OR_RETURN(spec.layers, GgufUint(file, "llama.block_count"));
  WEFT_ASSIGN_OR_RETURN(spec.hidden, GgufUint(file, "llama.embedding_length"));
  WEFT_ASSIGN_OR_RETURN(spec.heads, GgufUint(file, "llama.attention.head_count"));
  WEFT_ASSIGN_OR_RETURN(spec.kv_heads, GgufUint(file, "llama.attention.head_count_kv", spec.heads));
  const uint32_t even_head = spec.hidden / std::max(spec.heads, 1u);
  if (!file.Has("llama.attention.key_length") && even_head * spec.heads != spec.hidden &&
      spec.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": llama.attention.key_length: is missing, and llama.embedding_length ",
        spec.hidden, " is no multiple of llama.attention.head_count ", spec.heads));
  }
  WEFT_ASSIGN_OR_RETURN(spec.head_dim, GgufUint(file, "llama.attention.key_length", even_head));
  WEFT_ASSIGN_OR_RETURN(const uint32_t value_dim,
                        GgufUint(file, "llama.attention.value_length", spec.head_dim));
  if (value_dim != spec.head_dim) {
    return Unsupported(
        absl::StrCat(file.path(), ": llama.attention.value_length"),
        absl::StrCat(value_dim, " is not supported beside a key_length of ", spec.head_dim));
  }
  WEFT_ASSIGN_OR_RETURN(spec.mlp_hidden, GgufUint(file, "llama.feed_forward_length"));
  if (embedding->dims[1] > kVocabMax) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", kGgufNames.embedding,
                                                   ": ", embedding->dims[1], " rows are more than ",
                                                   kVocabMax));
  }
  WEFT_ASSIGN_OR_RETURN(
      spec.vocab, GgufUint(file, "llama.vocab_size", static_cast<int64_t>(embedding->dims[1])));
  WEFT_ASSIGN_OR_RETURN(spec.context_tokens, GgufUint(file, "llama.context_length"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon,
                        file.GetFloat("llama.attention.layer_norm_rms_epsilon"));
  spec.norm_epsilon = static_cast<float>(epsilon);
  // No key tells of a separate head or of biases: the tensors themselves do.
  spec.tied_head = file.FindTensor(kGgufNames.head) == nullptr;
  spec.qkv_bias = file.FindTensor("blk.0.attn_q.bias") != nullptr;
  spec.output_bias = file.FindTensor("blk.0.attn_output.bias") != nullptr;
  spec.mlp_bias = file.FindTensor("blk.0.ffn_gate.bias") != nullptr;
  WEFT_ASSIGN_OR_RETURN(spec.rope.dims,
                        GgufUint(file, "llama.rope.dimension_count", spec.head_dim));
  WEFT_RETURN_IF_ERROR(RopeFromGguf(file, &spec.rope));
  WEFT_RETURN_IF_ERROR(ValidateSpec(spec, KeysOf(file)));
  WEFT_ASSIGN_OR_RETURN(spec.eos_ids, EosFromGguf(file, spec.vocab));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  out.params = MakeParams(spec, kGgufNames);
  out.unused = {"rope_freqs.weight"};
  return out;
}

}  // namespace weft::shard

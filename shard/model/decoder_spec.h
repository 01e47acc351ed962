// The shape of a decoder-only transformer as plain data: everything the one forward in
// shard/model/decoder.cc needs to know about a family. Made by shard/model/families from
// config.json or GGUF metadata; read-only afterwards. Knows nothing of ranks, devices or weights'
// bytes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shard/model/experts_spec.h"
#include "shard/model/latent_spec.h"

namespace weft::shard {

enum class NormKind : uint8_t { kRmsNorm, kLayerNorm };
// How a token knows where it stands. kLearned: a row of a table is added to its embedding. kAlibi:
// a score of attention gets a bias that falls with the distance (AlibiSlopes). kNone: not at all.
enum class PositionKind : uint8_t { kRotary, kLearned, kAlibi, kNone };
// kGeluErf is x/2 (1 + erf(x / sqrt 2)); kGeluTanh the approximation of it by tanh.
// kClampedSwiglu is of a gate and an up together, cut at activation_limit:
//   g' = min(g, limit), u' = u cut to [-limit, limit]: g' / (1 + exp(-1.702 g')) * (u' + 1)
enum class Activation : uint8_t { kSilu, kGeluErf, kGeluTanh, kRelu, kClampedSwiglu };

// How rotary frequencies are changed for long contexts.
enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3, kYarn, kFrequencyFactors };

struct RopeSpec {
  float theta = 10000.0f;
  // Elements of a head that are rotated, even, <= head_dim: its first ones, in latent attention its
  // last. Pairs are (i, i + dims / 2) of those.
  uint32_t dims = 0;
  RopeScalingKind scaling = RopeScalingKind::kNone;
  // kLinear: positions are divided by it. kLlama3, kYarn: so are those of the low frequencies.
  float factor = 1.0f;
  // kLlama3 only.
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  // kLlama3, kYarn.
  uint32_t original_context_tokens = 0;
  // kYarn: a pair that turns this often in the original context and more keeps its frequency, one
  // that turns this seldom and less has the low one; `truncate`: ends of that range are whole
  // pairs.
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  bool truncate = true;
  // kFrequencyFactors (GGUF `rope_freqs`, longrope): dims / 2 divisors of the frequencies.
  std::vector<float> frequency_factors;
  // Cosines and sines are multiplied by it.
  float attention_factor = 1.0f;

  bool operator==(const RopeSpec& other) const = default;
};

// What attention layers of one kind have in common.
struct AttentionKind {
  // A query at position p sees positions p - window_tokens + 1 .. p; 0 = all up to p.
  uint32_t window_tokens = 0;
  // Without dims, heads are not rotated.
  RopeSpec rope;
};

struct DecoderSpec {
  // Family as in config.json's model_type, for example "llama".
  std::string family;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  // Elements of a key; need not be hidden / heads.
  uint32_t head_dim = 0;
  // With it there is one KV head, and head_dim is latent.rank + rope.dims.
  LatentSpec latent;
  // Columns of the hidden layer of a plain MLP; of layers with experts, see `experts`.
  uint32_t mlp_hidden = 0;
  uint32_t vocab = 0;
  // Columns of the embedding and of the head, with a matrix between them and the layers on either
  // side; 0 = they have `hidden` of them, and no matrices between.
  uint32_t embedding_dim = 0;
  uint32_t context_tokens = 0;
  NormKind norm = NormKind::kRmsNorm;
  float norm_epsilon = 1e-5f;
  // Added to the weights of every norm: files of some families keep them less 1.
  float norm_weight_offset = 0.0f;
  // kLayerNorm only: something is added behind the weights.
  bool norm_bias = false;
  PositionKind position = PositionKind::kRotary;
  // Without rotary positions their dims are 0. At least one; which one a layer has is in
  // layer_attention, where empty means the first for all.
  std::vector<AttentionKind> attention_kinds = std::vector<AttentionKind>(1);
  std::vector<uint8_t> layer_attention;
  // kLearned: rows of the table; position p has row p + position_offset.
  uint32_t position_rows = 0;
  uint32_t position_offset = 0;
  // A token's embedding is multiplied by it.
  float embedding_scale = 1.0f;
  // The sum of token and position embedding is normalised before the first layer.
  bool embedding_norm = false;
  // MLP: down(activation(gate) * up), or without a gate down(activation(up)).
  Activation activation = Activation::kSilu;
  // kClampedSwiglu only.
  float activation_limit = 0.0f;
  bool gated_mlp = true;
  // In place of the MLP, in all layers but plain ones.
  ExpertsSpec experts;
  // Both halves of a layer read the same residual; otherwise the MLP reads what attention has
  // added to it.
  bool parallel_residual = false;
  // With a parallel residual: one norm feeds both.
  bool shared_norm = false;
  // What attention and the MLP make is normalised before it is added to the residual.
  bool post_norms = false;
  // The norms of attention and MLP stand behind them, and are of the residual that they have added
  // to: it goes on normalised, and attention and the MLP read it as it is.
  bool residual_norms = false;
  // A norm stands between the last layer and the head.
  bool final_norm = true;
  // Query and key heads are RMS-normalised, each by itself, before they are rotated.
  bool head_norms = false;
  // Query, key and value are cut to [-qkv_clip, qkv_clip]; 0 = they are not.
  float qkv_clip = 0.0f;
  bool qkv_bias = false;
  bool output_bias = false;
  // Of the down projection, and of gate and up.
  bool mlp_bias = false;
  // The head is the embedding matrix.
  bool tied_head = false;
  bool head_bias = false;
  // Logits become cap * tanh(logit / cap); 0 = no cap.
  float logit_soft_cap = 0.0f;
  // Attention scores are multiplied by it; normally query_dim()^-0.5.
  float attention_scale = 0.0f;
  // Scaled scores become cap * tanh(score / cap), before anything is added or hidden; 0 = no cap.
  float attention_soft_cap = 0.0f;
  // kAlibi: 2^-alibi_bias_max is the smallest slope of a power of two of heads, and all slopes are
  // multiplied by alibi_scale.
  float alibi_bias_max = 8.0f;
  float alibi_scale = 1.0f;
  // Every query head has one logit more in the denominator of its softmax (ParamKind::kSinks).
  bool attention_sinks = false;
  // End-of-sequence ids as the model files state them (the router decides what stops).
  std::vector<uint32_t> eos_ids;

  uint32_t KindOf(uint32_t layer) const {
    return layer_attention.empty() ? 0 : layer_attention[layer];
  }
  const AttentionKind& attention(uint32_t layer) const { return attention_kinds[KindOf(layer)]; }
  // The first kind whose heads are rotated as those of `kind`: they share a rotary table.
  uint32_t RopeKind(uint32_t kind) const;

  // Elements of a head: of a query as it is made, of what attention makes, and of what goes on from
  // there.
  uint32_t query_dim() const {
    return latent.rank > 0 ? latent.plain_dim + attention_kinds[0].rope.dims : head_dim;
  }
  uint32_t attention_dim() const { return latent.rank > 0 ? latent.rank : head_dim; }
  uint32_t output_dim() const { return latent.rank > 0 ? latent.value_dim : head_dim; }
  // Columns of the embedding and of the head.
  uint32_t embedding_columns() const { return embedding_dim > 0 ? embedding_dim : hidden; }
  // Elements of the widest row that ranks sum: the embedding's, or what goes to the residual.
  uint32_t widest_sum() const { return embedding_dim > hidden ? embedding_dim : hidden; }

  bool HasExperts(uint32_t layer) const {
    return experts.count > 0 && (experts.plain_layers.empty() || !experts.plain_layers[layer]);
  }
  // Their numbers, ascending.
  std::vector<uint32_t> LayersWithExperts() const;
  // Whether any layer has a MLP of its own, which is mlp_hidden wide.
  bool HasPlainMlp() const;

  // Parameters of the whole model.
  uint64_t parameters() const;
  // Of those, the ones of experts, of which a token takes experts.per_token of experts.count.
  uint64_t expert_parameters() const;
  // 64-bit hash of all fields above, for the check that all ranks run one model.
  uint64_t Hash() const;
};

// The inverse frequencies of rotary embedding, rope.dims / 2 of them, after scaling; float32 as in
// transformers' modeling_rope_utils.
std::vector<float> RopeInverseFrequencies(const RopeSpec& rope);

// The slope of each query head under kAlibi, for any number of heads; empty otherwise. A score gets
// slope * key position (transformers' build_alibi_tensor of BLOOM; MPT's differ from them by a
// constant per row, which a softmax does not see).
std::vector<float> AlibiSlopes(const DecoderSpec& spec);

}  // namespace weft::shard

#include "shard/model/decoder_spec.h"

#include <bit>
#include <cmath>

#include "absl/algorithm/container.h"
#include "common/fnv.h"

namespace weft::shard {
namespace {

// Over the fields, each as eight bytes.
class FieldHash {
 public:
  void Add(uint64_t value) { hash_.AddNumber(value); }
  void Add(float value) { Add(uint64_t{std::bit_cast<uint32_t>(value)}); }
  void Add(bool value) { Add(uint64_t{value}); }
  void Add(uint32_t value) { Add(uint64_t{value}); }
  void Add(const std::string& value) {
    Add(uint64_t{value.size()});
    for (const char c : value) Add(uint64_t{static_cast<unsigned char>(c)});
  }
  void Add(const RopeSpec& rope) {
    Add(rope.theta);
    Add(rope.dims);
    Add(static_cast<uint32_t>(rope.scaling));
    Add(rope.factor);
    Add(rope.low_freq_factor);
    Add(rope.high_freq_factor);
    Add(rope.original_context_tokens);
    Add(rope.beta_fast);
    Add(rope.beta_slow);
    Add(rope.truncate);
    Add(uint64_t{rope.frequency_factors.size()});
    for (const float factor : rope.frequency_factors) Add(factor);
    Add(rope.attention_factor);
  }
  uint64_t hash() const { return hash_.value(); }

 private:
  Fnv1a<uint64_t> hash_;
};

}  // namespace

uint32_t DecoderSpec::RopeKind(uint32_t kind) const {
  uint32_t first = 0;
  while (!(attention_kinds[first].rope == attention_kinds[kind].rope)) ++first;
  return first;
}

std::vector<uint32_t> DecoderSpec::LayersWithExperts() const {
  std::vector<uint32_t> with;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    if (HasExperts(layer)) with.push_back(layer);
  }
  return with;
}

bool DecoderSpec::HasPlainMlp() const {
  return experts.count == 0 || absl::c_linear_search(experts.plain_layers, true);
}

uint64_t DecoderSpec::Hash() const {
  FieldHash hash;
  hash.Add(family);
  for (const uint32_t value : {layers, hidden, heads, kv_heads, head_dim, mlp_hidden, vocab,
                               embedding_dim, context_tokens}) {
    hash.Add(value);
  }
  hash.Add(static_cast<uint32_t>(norm));
  hash.Add(norm_epsilon);
  hash.Add(norm_bias);
  hash.Add(static_cast<uint32_t>(position));
  hash.Add(uint64_t{attention_kinds.size()});
  for (const AttentionKind& kind : attention_kinds) {
    hash.Add(kind.window_tokens);
    hash.Add(kind.rope);
  }
  hash.Add(uint64_t{layer_attention.size()});
  for (const uint8_t kind : layer_attention) hash.Add(uint32_t{kind});
  hash.Add(position_rows);
  hash.Add(position_offset);
  hash.Add(static_cast<uint32_t>(activation));
  hash.Add(qkv_clip);
  for (const bool value : {embedding_norm, gated_mlp, parallel_residual, shared_norm, post_norms,
                           residual_norms, final_norm, head_norms, qkv_bias, output_bias, mlp_bias,
                           tied_head, head_bias, attention_sinks}) {
    hash.Add(value);
  }
  for (const float value : {norm_weight_offset, embedding_scale, logit_soft_cap, attention_scale,
                            attention_soft_cap, alibi_bias_max, alibi_scale, activation_limit}) {
    hash.Add(value);
  }
  for (const uint32_t value :
       {latent.rank, latent.query_rank, latent.plain_dim, latent.value_dim}) {
    hash.Add(value);
  }
  hash.Add(latent.norm_epsilon);
  for (const uint32_t value : {experts.count, experts.per_token, experts.hidden,
                               experts.shared_hidden, static_cast<uint32_t>(experts.score),
                               experts.groups, experts.groups_taken, experts.group_best}) {
    hash.Add(value);
  }
  for (const bool value : {experts.renormalised, experts.shared_scale, experts.router_bias,
                           experts.bias, experts.choice_bias}) {
    hash.Add(value);
  }
  hash.Add(experts.weight_scale);
  hash.Add(uint64_t{experts.plain_layers.size()});
  for (const bool plain : experts.plain_layers) hash.Add(plain);
  hash.Add(uint64_t{eos_ids.size()});
  for (const uint32_t id : eos_ids) hash.Add(id);
  return hash.hash();
}

std::vector<float> AlibiSlopes(const DecoderSpec& spec) {
  std::vector<float> slopes;
  if (spec.position != PositionKind::kAlibi) return slopes;
  // The slopes of the largest power of two of heads, then every second one of twice as many.
  const uint32_t power = std::bit_floor(spec.heads);
  for (uint32_t head = 0; head < spec.heads; ++head) {
    const float index = head < power ? static_cast<float>(head + 1)
                                     : static_cast<float>(2 * (head - power) + 1) / 2.0f;
    const float exponent = index * spec.alibi_bias_max / static_cast<float>(power);
    slopes.push_back(spec.alibi_scale * std::exp2(-exponent));
  }
  return slopes;
}

}  // namespace weft::shard

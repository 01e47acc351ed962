#include "shard/model/decoder_spec.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

RopeSpec RopeOf(const boost::json::value& golden) {
  const boost::json::object& parameters = golden.at("rope_parameters").as_object();
  const auto number = [&parameters](const char* key) {
    return parameters.at(key).to_number<float>();
  };
  RopeSpec rope;
  rope.dims = golden.at("head_dim").to_number<uint32_t>();
  rope.theta = number("rope_theta");
  const boost::json::string& type = parameters.at("rope_type").as_string();
  if (type == "default") return rope;
  rope.factor = number("factor");
  rope.scaling = RopeScalingKind::kLinear;
  if (type == "linear") return rope;
  rope.original_context_tokens =
      parameters.at("original_max_position_embeddings").to_number<uint32_t>();
  if (type == "yarn") {
    rope.scaling = RopeScalingKind::kYarn;
    if (parameters.contains("beta_fast")) rope.beta_fast = number("beta_fast");
    rope.truncate = !parameters.contains("truncate");
    return rope;
  }
  rope.scaling = RopeScalingKind::kLlama3;
  rope.low_freq_factor = number("low_freq_factor");
  rope.high_freq_factor = number("high_freq_factor");
  return rope;
}

TEST_CASE("Inverse rotary frequencies are those of transformers", "[shard][model]") {
  const boost::json::value goldens = test::ReadGolden("rope.json");
  REQUIRE(goldens.as_array().size() == 8);
  for (const boost::json::value& golden : goldens.as_array()) {
    const std::vector<float> got = RopeInverseFrequencies(RopeOf(golden));
    const boost::json::array& want = golden.at("inverse").as_array();
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      INFO("head_dim " << golden.at("head_dim") << ", frequency " << i);
      // Two float32 powers may differ in the last bits.
      CHECK(got[i] == Approx(want[i].to_number<double>()).epsilon(1e-6));
    }
  }
}

TEST_CASE("Frequency factors divide the frequencies", "[shard][model]") {
  RopeSpec rope;
  rope.dims = 4;
  const std::vector<float> plain = RopeInverseFrequencies(rope);
  rope.scaling = RopeScalingKind::kFrequencyFactors;
  rope.frequency_factors = {1.0f, 8.0f};
  CHECK(RopeInverseFrequencies(rope) == std::vector<float>{plain[0], plain[1] / 8.0f});
}

TEST_CASE("The spec's hash depends on every field", "[shard][model]") {
  std::vector<DecoderSpec> specs(1);
  const auto changed = [&specs]() -> DecoderSpec& {
    specs.push_back(specs[0]);
    return specs.back();
  };
  specs.reserve(80);
  changed().family = "other";
  changed().layers = 1;
  changed().hidden = 1;
  changed().heads = 1;
  changed().kv_heads = 1;
  changed().head_dim = 1;
  changed().mlp_hidden = 1;
  changed().vocab = 1;
  changed().embedding_dim = 1;
  changed().context_tokens = 1;
  changed().norm_epsilon = 0.5f;
  changed().attention_kinds[0].rope.theta = 1.0f;
  changed().attention_kinds[0].rope.dims = 2;
  changed().attention_kinds[0].rope.scaling = RopeScalingKind::kLinear;
  changed().attention_kinds[0].rope.factor = 2.0f;
  changed().attention_kinds[0].rope.low_freq_factor = 2.0f;
  changed().attention_kinds[0].rope.high_freq_factor = 2.0f;
  changed().attention_kinds[0].rope.original_context_tokens = 1;
  changed().attention_kinds[0].rope.beta_fast = 2.0f;
  changed().attention_kinds[0].rope.beta_slow = 2.0f;
  changed().attention_kinds[0].rope.truncate = false;
  changed().attention_kinds[0].rope.frequency_factors = {1.0f};
  changed().attention_kinds[0].rope.attention_factor = 2.0f;
  changed().position = PositionKind::kAlibi;
  changed().position = PositionKind::kNone;
  changed().attention_kinds[0].window_tokens = 1;
  changed().attention_kinds.emplace_back();
  changed().layer_attention = {0};
  changed().attention_soft_cap = 1.0f;
  changed().alibi_bias_max = 1.0f;
  changed().alibi_scale = 2.0f;
  changed().attention_sinks = true;
  changed().norm = NormKind::kLayerNorm;
  changed().norm_bias = true;
  changed().norm_weight_offset = 1.0f;
  changed().embedding_scale = 2.0f;
  changed().post_norms = true;
  changed().residual_norms = true;
  changed().final_norm = false;
  changed().logit_soft_cap = 1.0f;
  changed().position = PositionKind::kLearned;
  changed().position_rows = 1;
  changed().position_offset = 1;
  changed().embedding_norm = true;
  changed().activation = Activation::kRelu;
  changed().gated_mlp = false;
  changed().parallel_residual = true;
  changed().shared_norm = true;
  changed().head_norms = true;
  changed().qkv_clip = 1.0f;
  changed().head_bias = true;
  changed().qkv_bias = true;
  changed().output_bias = true;
  changed().mlp_bias = true;
  changed().tied_head = true;
  changed().attention_scale = 1.0f;
  changed().eos_ids = {1};
  changed().latent.rank = 1;
  changed().latent.query_rank = 1;
  changed().latent.plain_dim = 1;
  changed().latent.value_dim = 1;
  changed().latent.norm_epsilon = 0.5f;
  changed().experts.score = ExpertScore::kSigmoid;
  changed().experts.choice_bias = true;
  changed().experts.groups = 2;
  changed().experts.groups_taken = 2;
  changed().experts.group_best = 2;
  changed().experts.weight_scale = 2.0f;
  std::set<uint64_t> hashes;
  for (const DecoderSpec& spec : specs) hashes.insert(spec.Hash());
  CHECK(hashes.size() == specs.size());
  CHECK(specs[0].Hash() == DecoderSpec().Hash());
}

// transformers 5.x: modeling_bloom's _get_alibi_slopes and modeling_mpt's build_mpt_alibi_tensor.
TEST_CASE("ALiBi slopes are those of transformers for any number of heads", "[shard][model]") {
  struct Golden {
    uint32_t heads;
    float bias_max;
    std::vector<float> slopes;
  };
  const Golden goldens[] = {
      {1, 8.0f, {0.00390625f}},
      {3, 8.0f, {0.0625f, 0.00390625f, 0.25f}},
      {8, 8.0f, {0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f, 0.0078125f, 0.00390625f}},
      {12,
       8.0f,
       {0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f, 0.0078125f, 0.00390625f, 0.70710677f,
        0.35355338f, 0.17677668f, 0.088388339f}},
      {6, 8.0f, {0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f}},
      {5, 4.0f, {0.5f, 0.25f, 0.125f, 0.0625f, 0.70710677f}}};
  DecoderSpec spec;
  CHECK(AlibiSlopes(spec).empty());
  spec.position = PositionKind::kAlibi;
  for (const Golden& golden : goldens) {
    spec.heads = golden.heads;
    spec.alibi_bias_max = golden.bias_max;
    const std::vector<float> got = AlibiSlopes(spec);
    REQUIRE(got.size() == golden.slopes.size());
    for (size_t i = 0; i < got.size(); ++i) {
      INFO(golden.heads << " heads, slope " << i);
      CHECK(got[i] == Approx(golden.slopes[i]).epsilon(1e-6));
    }
  }
  spec.alibi_scale = 0.5f;
  CHECK(AlibiSlopes(spec)[0] == Approx(goldens[5].slopes[0] / 2));
}

TEST_CASE("Layers share rotary tables where their settings are the same", "[shard][model]") {
  DecoderSpec spec;
  spec.attention_kinds.assign(3, {});
  spec.attention_kinds[1].window_tokens = 4;
  spec.attention_kinds[2].rope.theta = 1e6f;
  spec.layer_attention = {1, 2, 0};
  CHECK(spec.attention(0).window_tokens == 4);
  CHECK(spec.attention(1).rope.theta == 1e6f);
  CHECK(spec.RopeKind(0) == 0);
  CHECK(spec.RopeKind(1) == 0);
  CHECK(spec.RopeKind(2) == 2);
}

TEST_CASE("Biases count as parameters", "[shard][model]") {
  DecoderSpec spec;
  spec.layers = 2;
  spec.hidden = 8;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.mlp_hidden = 16;
  spec.vocab = 10;
  spec.tied_head = true;
  // Norms 16, query and output 64 each, key and value 32 each, MLP 3 * 128.
  const uint64_t plain = 2 * (16 + 2 * 64 + 2 * 32 + 384) + 80 + 8;
  CHECK(spec.parameters() == plain);
  spec.tied_head = false;
  CHECK(spec.parameters() == plain + 80);
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  CHECK(spec.parameters() == plain + 80 + 2 * (8 + 4 + 4 + 8 + 16 + 16 + 8));
  CHECK(spec.expert_parameters() == 0);
  spec.experts.count = 4;
  spec.experts.hidden = 6;
  // Gate, up and down of each expert of two layers; the router is no expert's.
  CHECK(spec.expert_parameters() == 2 * 4 * 3 * 6 * 8);
}

}  // namespace
}  // namespace weft::shard

// The DeepSeek families: what their configurations say of latents and experts, and what is refused.
// What they compute is held against transformers by the tiny models of tests/goldens.

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "boost/json.hpp"
#include "shard/model/families/registry.h"
#include "tests/shard/model/describe_config.h"

namespace weft::shard {
namespace {

namespace json = boost::json;

json::object SmallConfig(const char* family) {
  return {{"model_type", family},
          {"vocab_size", 100},
          {"hidden_size", 64},
          {"num_hidden_layers", 5},
          {"num_attention_heads", 3},
          {"intermediate_size", 96},
          {"kv_lora_rank", 40},
          {"qk_nope_head_dim", 16},
          {"qk_rope_head_dim", 8},
          {"v_head_dim", 12},
          {"n_routed_experts", 12},
          {"num_experts_per_tok", 4},
          {"moe_intermediate_size", 20},
          {"n_shared_experts", 2},
          {"n_group", 3},
          {"topk_group", 2},
          {"max_position_embeddings", 512}};
}

// The first tensor of a kind; null when the model has none.
const ParamTensor* Find(const ModelDescription& model, ParamKind kind) {
  const auto found = absl::c_find_if(
      model.params, [kind](const ParamTensor& param) { return param.key.kind == kind; });
  return found == model.params.end() ? nullptr : &*found;
}

TEST_CASE("A minimal DeepSeek config takes transformers' defaults", "[shard][model]") {
  json::object config = SmallConfig("deepseek_v2");
  // Not of the latents' norms.
  config["rms_norm_eps"] = 1e-5;
  const auto v2 = Describe(config);
  INFO(v2.status());
  REQUIRE(v2.ok());
  const DecoderSpec& spec = v2->spec;
  CHECK(spec.norm_epsilon == 1e-5f);
  CHECK(spec.latent.norm_epsilon == 1e-6f);
  CHECK(spec.kv_heads == 1);
  CHECK(spec.head_dim == 48);
  CHECK(spec.query_dim() == 24);
  CHECK(spec.attention_dim() == 40);
  CHECK(spec.output_dim() == 12);
  CHECK(spec.attention_scale == Approx(std::pow(24.0, -0.5)));
  CHECK(spec.experts.shared_hidden == 40);
  CHECK_FALSE(spec.experts.shared_scale);
  CHECK_FALSE(spec.experts.renormalised);
  CHECK(spec.experts.weight_scale == 1.0f);
  // Without another method the best of all are taken.
  CHECK(spec.experts.groups == 1);
  CHECK(spec.experts.plain_layers.empty());
  const auto v3 = Describe(SmallConfig("deepseek_v3"));
  INFO(v3.status());
  REQUIRE(v3.ok());
  const ExpertsSpec& experts = v3->spec.experts;
  CHECK(experts.score == ExpertScore::kSigmoid);
  CHECK(experts.renormalised);
  CHECK(experts.choice_bias);
  CHECK(experts.weight_scale == 2.5f);
  CHECK(experts.groups == 3);
  CHECK(experts.groups_taken == 2);
  CHECK(experts.group_best == 2);
  CHECK(experts.plain_layers == std::vector<bool>{true, true, true, false, false});
}

TEST_CASE("Queries come from the hidden state or from a latent of their own", "[shard][model]") {
  json::object config = SmallConfig("deepseek_v3");
  auto model = Describe(config);
  REQUIRE(model.ok());
  CHECK(Find(*model, ParamKind::kQueryDown) == nullptr);
  CHECK(absl::EndsWith(Find(*model, ParamKind::kQuery)->name, "q_proj.weight"));
  config["q_lora_rank"] = 32;
  model = Describe(config);
  REQUIRE(model.ok());
  CHECK(Find(*model, ParamKind::kQueryDown)->shape == std::vector<uint64_t>{32, 64});
  const ParamTensor& query = *Find(*model, ParamKind::kQuery);
  CHECK(absl::EndsWith(query.name, "q_b_proj.weight"));
  CHECK(query.shape == std::vector<uint64_t>{3 * 24, 32});
  CHECK(query.row_order == RowOrder::kInterleavedRotary);
  CHECK(Find(*model, ParamKind::kLatent)->row_order == RowOrder::kInterleavedRotary);
  config["rope_interleave"] = false;
  CHECK(Find(*Describe(config), ParamKind::kQuery)->row_order == RowOrder::kPlain);
}

TEST_CASE("One tensor makes keys and values of latents", "[shard][model]") {
  const auto model = Describe(SmallConfig("deepseek_v2"));
  REQUIRE(model.ok());
  const ParamTensor& keys = *Find(*model, ParamKind::kKeyUp);
  const ParamTensor& values = *Find(*model, ParamKind::kValueUp);
  CHECK(keys.name == values.name);
  CHECK(keys.shape == std::vector<uint64_t>{3 * 40, 16});
  CHECK(values.shape == std::vector<uint64_t>{3 * 12, 40});
  CHECK(keys.file.shape == std::vector<uint64_t>{3 * (16 + 12), 40});
  CHECK(values.file.shape == keys.file.shape);
  CHECK(keys.file.transposed);
  CHECK_FALSE(values.file.transposed);
}

TEST_CASE("YaRN multiplies DeepSeek's scores where mscale_all_dim says so", "[shard][model]") {
  json::object config = SmallConfig("deepseek_v2");
  json::object rope = {{"type", "yarn"}, {"factor", 40}, {"original_max_position_embeddings", 64}};
  config["rope_scaling"] = rope;
  const double plain = std::pow(24.0, -0.5);
  CHECK(Describe(config)->spec.attention_scale == Approx(plain));
  rope["mscale_all_dim"] = 0.707;
  config["rope_scaling"] = rope;
  const double scale = 0.1 * 0.707 * std::log(40.0) + 1;
  CHECK(Describe(config)->spec.attention_scale == Approx(plain * scale * scale));
  rope["type"] = "default";
  config["rope_scaling"] = rope;
  CHECK(Describe(config)->spec.attention_scale == Approx(plain));
}

TEST_CASE("What lies behind the last layer is not read", "[shard][model]") {
  const auto model = Describe(SmallConfig("deepseek_v3"));
  REQUIRE(model.ok());
  CHECK(absl::c_linear_search(model->unused, "model.layers.5.*"));
}

TEST_CASE("What the DeepSeek code does not have is refused by key", "[shard][model]") {
  const struct {
    const char* family;
    const char* key;
    json::value value;
    const char* want;
  } cases[] = {
      {"deepseek_v2", "attention_bias", true, "attention_bias: true is not supported"},
      {"deepseek_v2", "mlp_bias", true, "mlp_bias: true is not supported"},
      {"deepseek_v2", "norm_topk_prob", true, "norm_topk_prob: true is not supported"},
      {"deepseek_v2", "scoring_func", "sigmoid", "scoring_func: \"sigmoid\" is not supported"},
      {"deepseek_v2", "topk_method", "noaux_tc",
       "topk_method: \"noaux_tc\" is not supported; known are: greedy, group_limited_greedy"},
      {"deepseek_v2", "moe_layer_freq", 2, "moe_layer_freq: 2 is not supported; expected 1"},
      {"deepseek_v2", "num_key_value_heads", 1, "num_key_value_heads: 1 is not supported"},
      {"deepseek_v2", "hidden_act", "gelu", "hidden_act: \"gelu\" is not supported"},
      {"deepseek_v3", "attention_bias", true, "attention_bias: true is not supported"},
      {"deepseek_v3", "scoring_func", "softmax", "expected \"sigmoid\""},
      {"deepseek_v3", "topk_method", "greedy", "expected \"noaux_tc\""},
      {"deepseek_v3", "moe_layer_freq", 2, "moe_layer_freq: 2 is not supported"},
      {"deepseek_v3",
       "quantization_config",
       {{"quant_method", "fp8"}},
       "quantization_config: quantised safetensors are not supported"},
      {"deepseek_v3",
       "architectures",
       {"DeepseekV32ForCausalLM"},
       "known is: DeepseekV3ForCausalLM"},
  };
  for (const auto& c : cases) {
    json::object config = SmallConfig(c.family);
    config[c.key] = c.value;
    const absl::Status status = Describe(config).status();
    INFO(c.family << " " << status);
    CHECK(absl::IsUnimplemented(status));
    CHECK(absl::StrContains(status.message(), c.want));
  }
}

TEST_CASE("Impossible DeepSeek configs are refused with key and range", "[shard][model]") {
  const struct {
    const char* key;
    json::value value;
    const char* want;
  } cases[] = {
      {"kv_lora_rank", 0, "kv_lora_rank: must be even and from 2 to 1024, found 0"},
      {"kv_lora_rank", 41, "kv_lora_rank: must be even"},
      {"kv_lora_rank", 1020, "kv_lora_rank: with qk_rope_head_dim 8 must be at most 1024"},
      {"qk_rope_head_dim", 7, "qk_rope_head_dim: must be even"},
      {"qk_nope_head_dim", 5000, "qk_nope_head_dim: must be even"},
      {"v_head_dim", 0, "v_head_dim: must be even"},
      {"q_lora_rank", 4000000000u, "q_lora_rank: must be at most"},
      {"n_group", 5, "n_group: must divide the 12 experts, found 5"},
      {"n_group", 12, "n_group: must be from 1 to 6, found 12"},
      {"topk_group", 4, "topk_group: must be from 1 to 3, found 4"},
      {"topk_group", 0, "topk_group: must be from 1 to 3, found 0"},
      {"num_experts_per_tok", 9, "topk_group: must be from 3 to 3, found 2"},
      {"n_shared_experts", 4000000000u, "n_shared_experts: must be from 0 to"},
      {"first_k_dense_replace", 5, "first_k_dense_replace: must be from 0 to 4, found 5"},
      {"routed_scaling_factor", 0, "routed_scaling_factor: must be a number above 0"},
  };
  for (const auto& c : cases) {
    json::object config = SmallConfig("deepseek_v3");
    config[c.key] = c.value;
    const absl::Status status = Describe(config).status();
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), c.want));
  }
}

}  // namespace
}  // namespace weft::shard

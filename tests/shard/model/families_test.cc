// What the families whose config.json is less like Llama's refuse, each by the name of the key.
// What they compute is held against transformers by the tiny models of tests/goldens.

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "boost/json.hpp"
#include "common/limits.h"
#include "shard/model/families/registry.h"
#include "tests/shard/model/describe_config.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

namespace json = boost::json;

// Sizes under the names that any of the families reads.
json::object SmallConfig(const char* family) {
  return {{"model_type", family},     {"vocab_size", 100},
          {"hidden_size", 64},        {"d_model", 64},
          {"num_hidden_layers", 2},   {"n_layers", 2},
          {"num_attention_heads", 4}, {"n_heads", 4},
          {"intermediate_size", 96},  {"max_position_embeddings", 512},
          {"max_seq_len", 512},       {"rotary_dim", 8}};
}

TEST_CASE("A minimal config of every family is read", "[shard][model]") {
  for (const char* family :
       {"phi", "phi3", "gpt2", "gpt_bigcode", "stablelm", "starcoder2", "gptj", "gpt_neox", "opt",
        "bloom", "mpt", "falcon", "gemma2", "gemma3_text"}) {
    const auto model = Describe(SmallConfig(family));
    INFO(family << " " << model.status());
    REQUIRE(model.ok());
    CHECK(model->spec.family == family);
    CHECK(model->spec.head_dim == 16);
  }
}

// As transformers' Gemma3TextConfig has them.
TEST_CASE("A Gemma 3 that names no base rotates whole layers by a million, windowed by 10000",
          "[shard][model]") {
  json::object config = SmallConfig("gemma3_text");
  auto model = Describe(config);
  REQUIRE(model.ok());
  CHECK(model->spec.attention_kinds[0].rope.theta == 1e6f);
  CHECK(model->spec.attention_kinds[1].rope.theta == 10000.0f);
  config["rope_theta"] = 500000.0;
  config["rope_local_base_freq"] = 20000.0;
  model = Describe(config);
  REQUIRE(model.ok());
  CHECK(model->spec.attention_kinds[0].rope.theta == 500000.0f);
  CHECK(model->spec.attention_kinds[1].rope.theta == 20000.0f);
}

TEST_CASE("What a family does not have is refused by key", "[shard][model]") {
  const struct {
    const char* family;
    const char* key;
    json::value value;
    const char* want;
  } cases[] = {
      {"phi", "qk_layernorm", true, "qk_layernorm: true is not supported; expected false"},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true, "inverse_layer_idx: true is not"},
      {"gpt2", "add_cross_attention", true, "add_cross_attention: true is not supported"},
      {"gpt2", "scale_attn_weights", false, "scale_attn_weights: false is not supported"},
      {"gpt2", "activation_function", "tanh", "activation_function: \"tanh\" is not supported"},
      {"gpt_bigcode", "multi_query", false, "multi_query: false is not supported"},
      {"opt", "layer_norm_elementwise_affine", false, "elementwise_affine: false is not supported"},
      {"opt", "activation_function", "tanh", "activation_function: \"tanh\" is not supported"},
      {"bloom", "apply_residual_connection_post_layernorm", true,
       "apply_residual_connection_post_layernorm: true is not supported"},
      {"mpt", "no_bias", false, "no_bias: false is not supported"},
      {"mpt", "logit_scale", 2.0, "logit_scale: is not supported; expected null"},
      {"mpt", "expansion_ratio", 3, "expansion_ratio: 3 is not supported; expected 4"},
      {"mpt", "attn_config", {{"alibi", false}}, "attn_config.alibi: false is not supported"},
      {"mpt", "attn_config", {{"qk_ln", true}}, "attn_config.qk_ln: true is not supported"},
      {"mpt",
       "attn_config",
       {{"attn_type", "multiquery_attention"}},
       "attn_type: \"multiquery_attention\" is not supported; known is: multihead_attention"},
      {"falcon", "parallel_attn", false, "parallel_attn: false is not supported with multi_query"},
      {"gemma2", "attention_bias", true, "attention_bias: true is not supported"},
      {"gemma3_text", "use_bidirectional_attention", true, "bidirectional_attention: true is not"},
      {"stablelm", "qk_layernorm", true, "qk_layernorm: true is not supported; expected false"},
      {"stablelm", "hidden_act", "tanh", "hidden_act: \"tanh\" is not supported"},
      {"stablelm", "rope_scaling", {{"type", "ntk"}}, "rope_scaling.type: \"ntk\" is not"},
      {"starcoder2", "architectures", {"StarCoder2Other"}, "known is: Starcoder2ForCausalLM"},
  };
  for (const auto& c : cases) {
    json::object config = SmallConfig(c.family);
    config[c.key] = c.value;
    const absl::Status status = Describe(config).status();
    INFO(c.family << " " << status);
    CHECK(absl::IsUnimplemented(status));
    CHECK(absl::StrContains(status.message(), "/config.json: "));
    CHECK(absl::StrContains(status.message(), c.want));
  }
}

// What the registry of config.json's families names, as it says where one is unknown.
std::set<std::string> KnownFamilies() {
  const absl::Status status = Describe(SmallConfig("unheard_of")).status();
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(status.message(), absl::MaxSplits("known are: ", 1));
  return absl::StrSplit(parts.second, ", ");
}

TEST_CASE("Every family has a tiny model, a row in docs/MODELS.md and its name in README.md",
          "[shard][model]") {
  const std::set<std::string> known = KnownFamilies();
  std::set<std::string> tried;
  for (const std::string& name : test::GoldenModels()) {
    if (test::ReadGolden(name + "/golden.json").at("model").as_string() != ".") continue;
    tried.emplace(test::ReadGolden(name + "/config.json").at("model_type").as_string());
  }
  CHECK(tried == known);

  const std::string table = test::ReadFile(test::GoldenPath("../../docs/MODELS.md"));
  for (const std::string& family : known) {
    INFO(family);
    CHECK(absl::StrContains(table, absl::StrCat("\n| `", family, "` | ")));
  }

  // "Models of 2 families: gpt2 and llama ([docs/MODELS.md]".
  const std::string readme = test::ReadFile(test::GoldenPath("../../README.md"));
  const std::string head = absl::StrCat("- Models of ", known.size(), " families: ");
  const size_t begin = readme.find(head);
  INFO("expected in README.md: \"" << head << "\"");
  REQUIRE(begin != std::string::npos);
  const size_t names = begin + head.size();
  const std::string list = readme.substr(names, readme.find(" ([docs/MODELS.md]", names) - names);
  CHECK(known ==
        std::set<std::string>(absl::StrSplit(absl::StrReplaceAll(list, {{" and ", ", "}}), ", ")));
}

TEST_CASE("StableLM's keys have the defaults of transformers", "[shard][model]") {
  json::object config = SmallConfig("stablelm");
  auto model = Describe(config);
  CHECK_FALSE(model->spec.qkv_bias);
  CHECK_FALSE(model->spec.parallel_residual);
  CHECK(model->spec.gated_mlp);
  CHECK(model->spec.attention_kinds[0].rope.dims == 4);
  config["use_qkv_bias"] = true;
  config["use_parallel_residual"] = true;
  config["partial_rotary_factor"] = 0.4;
  config["num_key_value_heads"] = 2;
  model = Describe(config);
  REQUIRE(model.ok());
  CHECK(model->spec.qkv_bias);
  CHECK(model->spec.shared_norm);
  CHECK(model->spec.attention_kinds[0].rope.dims == 6);
  CHECK(model->spec.kv_heads == 2);
}

TEST_CASE("OPT 350M's norms stand behind its sums, its embedding behind a matrix",
          "[shard][model]") {
  json::object config = SmallConfig("opt");
  auto model = Describe(config);
  REQUIRE(model.ok());
  CHECK(model->spec.final_norm);
  CHECK_FALSE(model->spec.residual_norms);
  CHECK(model->spec.embedding_dim == 0);
  // Where it is as wide as the layers there are no matrices.
  config["word_embed_proj_dim"] = 64;
  CHECK(Describe(config)->spec.embedding_dim == 0);
  config["word_embed_proj_dim"] = 32;
  config["do_layer_norm_before"] = false;
  model = Describe(config);
  REQUIRE(model.ok());
  CHECK_FALSE(model->spec.final_norm);
  CHECK(model->spec.residual_norms);
  CHECK(model->spec.embedding_columns() == 32);
  CHECK(model->params[0].shape == std::vector<uint64_t>{100, 32});
  CHECK(model->params[1].name == "model.decoder.project_in.weight");
  CHECK(model->params[1].shape == std::vector<uint64_t>{64, 32});
  CHECK(model->params[2].name == "model.decoder.project_out.weight");
  CHECK(model->params[2].shape == std::vector<uint64_t>{32, 64});
  config["do_layer_norm_before"] = true;
  config["_remove_final_layer_norm"] = true;
  model = Describe(config);
  CHECK_FALSE(model->spec.final_norm);
  CHECK_FALSE(model->spec.residual_norms);
}

TEST_CASE("An embedding of no columns, or of too many, is named", "[shard][model]") {
  json::object config = SmallConfig("opt");
  for (const uint32_t columns : {0u, kHiddenMax + 1}) {
    config["word_embed_proj_dim"] = columns;
    const absl::Status status = Describe(config).status();
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(
        status.message(),
        absl::StrCat("word_embed_proj_dim: must be from 1 to ", kHiddenMax, ", found ", columns)));
  }
}

TEST_CASE("Falcon's variants differ in heads and norms", "[shard][model]") {
  json::object config = SmallConfig("falcon");
  auto model = Describe(config);
  CHECK(model->spec.kv_heads == 1);
  CHECK(model->spec.shared_norm);
  config["multi_query"] = false;
  config["parallel_attn"] = false;
  model = Describe(config);
  REQUIRE(model.ok());
  CHECK(model->spec.kv_heads == 4);
  CHECK_FALSE(model->spec.parallel_residual);
  config["new_decoder_architecture"] = true;
  config["num_kv_heads"] = 2;
  model = Describe(config);
  CHECK(model->spec.kv_heads == 2);
  CHECK_FALSE(model->spec.shared_norm);
  // 11B: groups of heads and one norm.
  config["num_ln_in_parallel_attn"] = 1;
  model = Describe(config);
  CHECK(model->spec.shared_norm);
  CHECK(model->params[1].name == "transformer.h.0.input_layernorm.weight");
}

TEST_CASE("Falcon RW has ALiBi, scaled as its scores are, and heads that are not rotated",
          "[shard][model]") {
  json::object config = SmallConfig("falcon");
  config["alibi"] = true;
  config["multi_query"] = false;
  config["parallel_attn"] = false;
  config["bias"] = true;
  // Nothing reads it beside ALiBi, as in transformers.
  config["rope_theta"] = 10000.0;
  const auto model = Describe(config);
  INFO(model.status());
  REQUIRE(model.ok());
  CHECK(model->spec.position == PositionKind::kAlibi);
  CHECK(model->spec.alibi_scale == Approx(0.25f));
  CHECK(model->spec.alibi_bias_max == 8.0f);
  CHECK(model->spec.attention_kinds[0].rope.dims == 0);
  CHECK(model->spec.qkv_bias);
  config["alibi"] = "yes";
  CHECK(absl::StrContains(Describe(config).status().message(), "alibi: "));
}

}  // namespace
}  // namespace weft::shard

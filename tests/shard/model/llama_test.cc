#include "shard/model/families/llama.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "shard/model/families/registry.h"
#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/model/describe_config.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

namespace json = boost::json;
using test::GgufBuilder;

json::object SmallConfig() {
  return {{"model_type", "llama"},         {"hidden_size", 64},       {"num_hidden_layers", 2},
          {"num_attention_heads", 4},      {"intermediate_size", 96}, {"vocab_size", 100},
          {"max_position_embeddings", 512}};
}

// Config with one key changed.
absl::StatusOr<ModelDescription> With(const char* key, json::value value) {
  json::object config = SmallConfig();
  config[key] = std::move(value);
  return Describe(config);
}

TEST_CASE("A minimal Llama config takes transformers' defaults", "[shard][model]") {
  const auto model = Describe(SmallConfig());
  REQUIRE(model.ok());
  const DecoderSpec& spec = model->spec;
  CHECK(spec.family == "llama");
  CHECK(spec.kv_heads == 4);
  CHECK(spec.head_dim == 16);
  CHECK(spec.norm_epsilon == 1e-6f);
  CHECK(spec.attention_kinds[0].rope.theta == 10000.0f);
  CHECK(spec.attention_kinds[0].rope.dims == 16);
  CHECK(spec.attention_kinds[0].rope.scaling == RopeScalingKind::kNone);
  CHECK_FALSE(spec.tied_head);
  CHECK(spec.attention_scale == 0.25f);
  CHECK(spec.eos_ids.empty());
  // Embedding, nine tensors a layer, final norm and head.
  CHECK(model->params.size() == 1 + 2 * 9 + 2);
}

TEST_CASE("Rotary settings read alike in transformers' old and new form", "[shard][model]") {
  const json::object scaling = {{"rope_type", "llama3"},
                                {"factor", 8.0},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 64}};
  json::object old_form = SmallConfig();
  old_form["rope_theta"] = 500000.0;
  old_form["rope_scaling"] = scaling;
  json::object new_form = SmallConfig();
  json::object parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  new_form["rope_parameters"] = parameters;
  const auto a = Describe(old_form);
  const auto b = Describe(new_form);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(a->spec.Hash() == b->spec.Hash());
  CHECK(a->spec.attention_kinds[0].rope.theta == 500000.0f);
  CHECK(a->spec.attention_kinds[0].rope.scaling == RopeScalingKind::kLlama3);
  CHECK(a->spec.attention_kinds[0].rope.original_context_tokens == 64);

  const auto linear = With("rope_scaling", {{"type", "linear"}, {"factor", 2}});
  REQUIRE(linear.ok());
  CHECK(linear->spec.attention_kinds[0].rope.scaling == RopeScalingKind::kLinear);
  CHECK(linear->spec.attention_kinds[0].rope.factor == 2.0f);
}

TEST_CASE("The end set is generation_config.json's where there is one", "[shard][model]") {
  json::object config = SmallConfig();
  config["eos_token_id"] = 2;
  CHECK(Describe(config)->spec.eos_ids == std::vector<uint32_t>{2});
  CHECK(Describe(config, {{"eos_token_id", {5, 6}}})->spec.eos_ids == std::vector<uint32_t>{5, 6});
  CHECK(Describe(config, {{"temperature", 1.0}})->spec.eos_ids == std::vector<uint32_t>{2});
}

TEST_CASE("Bias keys add the bias tensors", "[shard][model]") {
  const auto attention = With("attention_bias", true);
  REQUIRE(attention.ok());
  CHECK(attention->spec.qkv_bias);
  CHECK(attention->spec.output_bias);
  CHECK_FALSE(attention->spec.mlp_bias);
  CHECK(attention->params.size() == 1 + 2 * (9 + 4) + 2);
  const auto mlp = With("mlp_bias", true);
  REQUIRE(mlp.ok());
  CHECK(mlp->spec.mlp_bias);
  CHECK(mlp->params.size() == 1 + 2 * (9 + 3) + 2);
  CHECK_FALSE(With("mlp_bias", 1).ok());
}

TEST_CASE("What the Llama code does not have is refused by key", "[shard][model]") {
  const struct {
    const char* key;
    json::value value;
    const char* want;
  } cases[] = {
      {"model_type", "mamba",
       "model_type: \"mamba\" is not a known model family; known are: llama, mistral, mixtral"},
      {"hidden_act", "gelu", "hidden_act: \"gelu\" is not supported; known is: silu"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor: 0.5 is not supported"},
      {"quantization_config", json::object{{"bits", 4}}, "quantization_config: quantised"},
      {"architectures",
       {"LlamaForTokenClassification"},
       "architectures: \"LlamaForTokenClassification\" is not supported"},
      {"rope_scaling",
       {{"rope_type", "xrope"}, {"factor", 2}},
       "rope_scaling.rope_type: \"xrope\" is not supported; known are: default, linear, dynamic, "
       "llama3, yarn, longrope"},
  };
  for (const auto& c : cases) {
    const absl::Status status = With(c.key, c.value).status();
    INFO(status);
    CHECK(absl::IsUnimplemented(status));
    CHECK(absl::StrContains(status.message(), std::string("/config.json: ") + c.want));
  }
}

TEST_CASE("Impossible Llama configs are refused with file and range", "[shard][model]") {
  const struct {
    const char* key;
    json::value value;
    const char* want;
  } cases[] = {
      {"hidden_size", nullptr, "hidden_size: is missing"},
      {"hidden_size", "64", "hidden_size: expected an integer"},
      {"hidden_size", 66, "head_dim: is missing, and hidden_size 66 is no multiple"},
      {"hidden_size", 1 << 20, "hidden_size: must be from 1 to 131072, found 1048576"},
      {"num_attention_heads", 0, "num_attention_heads: must be from 1 to 131072, found 0"},
      {"num_key_value_heads", 3, "num_key_value_heads: must divide the 4 attention heads, found 3"},
      {"num_key_value_heads", 8, "num_key_value_heads: must be from 1 to 4, found 8"},
      {"num_hidden_layers", 0, "num_hidden_layers: must be from 1 to 1024, found 0"},
      {"num_hidden_layers", 100000, "num_hidden_layers: must be from 1 to 1024, found 100000"},
      {"head_dim", 15, "head_dim: the size of a head must be even, found 15"},
      {"head_dim", 4096, "head_dim: must be from 1 to 1024, found 4096"},
      {"vocab_size", 0, "vocab_size: must be from 1"},
      {"max_position_embeddings", 0, "max_position_embeddings: must be from 1"},
      {"intermediate_size", 0, "intermediate_size: must be from 1"},
      {"rms_norm_eps", 0, "rms_norm_eps: must be above 0 and below 1, found 0"},
      {"rms_norm_eps", -1e-5, "rms_norm_eps: must be above 0 and below 1, found -1e-05"},
      {"rms_norm_eps", "NaN", "rms_norm_eps: expected a finite number, found \"NaN\""},
      {"rope_theta", -1, "rope_theta: must be a finite number of at least 1, found -1"},
      {"rope_theta", 0, "rope_theta: must be a finite number of at least 1, found 0"},
      {"rope_theta", 1e39, "rope_theta: expected a finite number"},
      {"rope_parameters", {{"rope_theta", 0}}, "rope_parameters.rope_theta: must be a finite"},
      {"eos_token_id", -5, "eos_token_id: expected an integer from 0 to 99, found -5"},
      {"eos_token_id", {2, 100}, "eos_token_id: expected an integer from 0 to 99, found 100"},
      {"rope_scaling", {{"type", "linear"}}, "rope_scaling.factor: is missing"},
      {"rope_scaling",
       {{"type", "linear"}, {"factor", 0}},
       "rope_scaling.factor: must be a finite"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 4},
        {"high_freq_factor", 1},
        {"original_max_position_embeddings", 64}},
       "rope_scaling.high_freq_factor: must be above low_freq_factor 4, found 1"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 0},
        {"high_freq_factor", 0},
        {"original_max_position_embeddings", 64}},
       "rope_scaling.low_freq_factor: must be above 0, found 0"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 1},
        {"high_freq_factor", 4},
        {"original_max_position_embeddings", 0}},
       "rope_scaling.original_max_position_embeddings: must be from 1 to 1048576, found 0"},
      {"eos_token_id", "two", "eos_token_id: expected an integer"},
  };
  for (const auto& c : cases) {
    const absl::Status status = With(c.key, c.value).status();
    INFO(status);
    CHECK_FALSE(status.ok());
    CHECK(absl::StrContains(status.message(), "/config.json: "));
    CHECK(absl::StrContains(status.message(), c.want));
  }
}

TEST_CASE("An end outside the vocabulary is refused in the file that names it", "[shard][model]") {
  json::object config = SmallConfig();
  config["eos_token_id"] = 2;
  const absl::Status status = Describe(config, {{"eos_token_id", {2, 100}}}).status();
  INFO(status);
  CHECK(absl::StrContains(
      status.message(), "/generation_config.json: eos_token_id: expected an integer from 0 to 99"));
}

// GGUF metadata of a small model without layers' tensors: families look only at keys, token_embd,
// output and rope_freqs.
GgufBuilder SmallGguf() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint("llama.block_count", 2)
      .Uint("llama.embedding_length", 64)
      .Uint("llama.feed_forward_length", 96)
      .Uint("llama.context_length", 512)
      .Uint("llama.attention.head_count", 4)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Tensor("token_embd.weight", {64, 10}, 0, std::string(64 * 10 * 4, '\0'));
  return builder;
}

absl::StatusOr<ModelDescription> Describe(const GgufBuilder& builder) {
  const test::TempDir dir;
  const auto file = GgufFile::Open(dir.Write("m.gguf", builder.Build()));
  REQUIRE(file.ok());
  return DescribeGgufModel(**file);
}

TEST_CASE("GGUF metadata gives the spec", "[shard][model]") {
  auto model = Describe(SmallGguf());
  REQUIRE(model.ok());
  CHECK(model->spec.kv_heads == 4);
  CHECK(model->spec.head_dim == 16);
  CHECK(model->spec.vocab == 10);
  CHECK(model->spec.tied_head);
  CHECK(model->spec.norm_epsilon == 1e-5f);
  CHECK(model->spec.attention_kinds[0].rope.theta == 10000.0f);

  model = Describe(SmallGguf()
                       .Uint("llama.attention.key_length", 20)
                       .Uint("llama.attention.value_length", 20)
                       .Uint("llama.rope.dimension_count", 8)
                       .Float("llama.rope.freq_base", 1e5f)
                       .String("llama.rope.scaling.type", "linear")
                       .Float("llama.rope.scaling.factor", 4.0f)
                       .Uint("tokenizer.ggml.eos_token_id", 2)
                       .Uint("tokenizer.ggml.eot_token_id", 7)
                       .Tensor("output.weight", {64, 10}, 0, std::string(64 * 10 * 4, '\0')));
  REQUIRE(model.ok());
  CHECK(model->spec.head_dim == 20);
  CHECK(model->spec.attention_kinds[0].rope.dims == 8);
  CHECK(model->spec.attention_kinds[0].rope.theta == 1e5f);
  CHECK(model->spec.attention_kinds[0].rope.scaling == RopeScalingKind::kLinear);
  CHECK(model->spec.attention_kinds[0].rope.factor == 4.0f);
  CHECK(model->spec.eos_ids == std::vector<uint32_t>{2, 7});
  CHECK_FALSE(model->spec.tied_head);
}

TEST_CASE("The rope_freqs tensor becomes frequency factors", "[shard][model]") {
  const std::string factors =
      test::Raw(1.0f) + test::Raw(2.0f) + test::Raw(4.0f) + test::Raw(8.0f) + std::string(16, '\0');
  auto model = Describe(SmallGguf()
                            .Uint("llama.rope.dimension_count", 8)
                            .Tensor("rope_freqs.weight", {4}, 0, factors.substr(0, 16)));
  REQUIRE(model.ok());
  CHECK(model->spec.attention_kinds[0].rope.scaling == RopeScalingKind::kFrequencyFactors);
  CHECK(model->spec.attention_kinds[0].rope.frequency_factors == std::vector<float>{1, 2, 4, 8});
  // Zeros would make infinite frequencies.
  CHECK(absl::StrContains(
      Describe(SmallGguf().Tensor("rope_freqs.weight", {8}, 0, factors)).status().message(),
      "tensor rope_freqs.weight: expected positive finite numbers, found 0"));
  CHECK(absl::StrContains(
      Describe(SmallGguf().Tensor("rope_freqs.weight", {4}, 0, factors.substr(0, 16)))
          .status()
          .message(),
      "rope_freqs.weight: expected F32 of 8 elements"));
}

TEST_CASE("GGUF metadata that the Llama code does not have is refused by key", "[shard][model]") {
  const auto refused = [](const GgufBuilder& builder, const char* want) {
    const absl::Status status = Describe(builder).status();
    INFO(status);
    CHECK_FALSE(status.ok());
    CHECK(absl::StrContains(status.message(), "/m.gguf: "));
    CHECK(absl::StrContains(status.message(), want));
  };
  refused(GgufBuilder().String("general.architecture", "mistral"),
          "general.architecture: \"mistral\" is not a known model family; known are: llama, qwen2");
  refused(GgufBuilder().Uint("x", 1), "has no key \"general.architecture\"");
  refused(GgufBuilder().String("general.architecture", "llama"), "token_embd.weight");
  refused(SmallGguf().Uint("llama.expert_count", 8),
          "llama.expert_used_count: must be from 1 to 8, found 0");
  refused(SmallGguf().Uint("llama.attention.sliding_window", 8), "sliding_window: 8");
  refused(SmallGguf().Key("llama.attention.causal", GgufBuilder::kBool, std::string(1, '\0')),
          "llama.attention.causal: false");
  refused(SmallGguf().String("llama.rope.scaling.type", "xrope"),
          "\"xrope\" is not supported; known are: none, linear, yarn, longrope");
  refused(SmallGguf().Float("llama.rope.scale_linear", 2), "llama.rope.scale_linear");
  refused(SmallGguf().Uint("llama.attention.value_length", 8), "value_length: 8");
  refused(SmallGguf().Key("llama.attention.head_count_kv", GgufBuilder::kArray,
                          test::Raw<uint32_t>(GgufBuilder::kU32) + test::Raw(uint64_t{1}) +
                              test::Raw(uint32_t{2})),
          "head_count_kv\": expected an integer, found an array");
  refused(SmallGguf().Uint("llama.rope.dimension_count", 7),
          "llama.rope.dimension_count: the rotary dimensions must be even, found 7");
}

TEST_CASE("Impossible GGUF metadata are refused with file, key and range", "[shard][model]") {
  const auto refused = [](const GgufBuilder& builder, const char* want) {
    const absl::Status status = Describe(builder).status();
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), std::string("/m.gguf: ") + want));
  };
  const std::string theta = "llama.rope.freq_base: must be a finite number of at least 1, found ";
  refused(SmallGguf().Float("llama.rope.freq_base", 0), (theta + "0").c_str());
  refused(SmallGguf().Float("llama.rope.freq_base", -1e4f), (theta + "-10000").c_str());
  refused(SmallGguf().Float("llama.rope.freq_base", INFINITY), (theta + "inf").c_str());
  refused(SmallGguf().Float("llama.rope.freq_base", NAN), (theta + "nan").c_str());
  refused(
      SmallGguf().String("llama.rope.scaling.type", "linear").Float("llama.rope.scaling.factor", 0),
      "llama.rope.scaling.factor: must be a finite number of at least 1, found 0");
  refused(SmallGguf().Uint("tokenizer.ggml.eos_token_id", 10),
          "tokenizer.ggml.eos_token_id: must be a token id from 0 to 9, found 10");
  refused(SmallGguf().Uint("tokenizer.ggml.eot_token_id", 4000000000u),
          "tokenizer.ggml.eot_token_id: must be a token id from 0 to 9, found 4000000000");
  refused(SmallGguf().Key("tokenizer.ggml.eos_token_id", GgufBuilder::kI32, test::Raw(int32_t{-5})),
          "key \"tokenizer.ggml.eos_token_id\": expected an integer of 0 or more, found -5");
  refused(SmallGguf().Uint("llama.attention.head_count_kv", 3),
          "llama.attention.head_count_kv: must divide the 4 attention heads, found 3");
  GgufBuilder odd;
  odd.String("general.architecture", "llama")
      .Uint("llama.block_count", 2)
      .Uint("llama.embedding_length", 66)
      .Uint("llama.feed_forward_length", 96)
      .Uint("llama.context_length", 512)
      .Uint("llama.attention.head_count", 4)
      .Float("llama.attention.layer_norm_rms_epsilon", NAN)
      .Tensor("token_embd.weight", {66, 10}, 0, std::string(66 * 10 * 4, '\0'));
  refused(odd, "llama.attention.key_length: is missing, and llama.embedding_length 66");
  refused(odd.Uint("llama.attention.key_length", 16),
          "llama.attention.layer_norm_rms_epsilon: must be above 0 and below 1, found nan");
}

TEST_CASE("Golden models have the parameters that transformers counts", "[shard][model]") {
  for (const std::string& name : test::GoldenModels()) {
    INFO(name);
    const std::string path = test::GoldenModelPath(name);
    absl::StatusOr<ModelDescription> model = absl::UnknownError("");
    if (absl::EndsWith(path, ".gguf")) {
      model = DescribeGgufModel(**GgufFile::Open(path));
    } else {
      model = DescribeHfModel(*HfConfig::Load(path));
    }
    REQUIRE(model.ok());
    CHECK(model->spec.parameters() ==
          test::ReadGolden(name + "/golden.json").at("parameters").to_number<uint64_t>());
  }
}

}  // namespace
}  // namespace weft::shard

// Rotary scaling as config.json and GGUF files state it. The numbers that follow from it are held
// against transformers by rope.json and the tiny models.

#include "shard/model/families/rope_keys.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "boost/json.hpp"
#include "shard/model/families/registry.h"
#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/model/describe_config.h"

namespace weft::shard {
namespace {

namespace json = boost::json;
using test::GgufBuilder;

json::object SmallConfig(const char* family, json::object scaling) {
  return {{"model_type", family},           {"hidden_size", 64},       {"num_hidden_layers", 2},
          {"num_attention_heads", 8},       {"intermediate_size", 96}, {"vocab_size", 100},
          {"max_position_embeddings", 512}, {"rope_scaling", scaling}};
}

absl::StatusOr<RopeSpec> RopeOfConfig(const json::object& config) {
  const absl::StatusOr<ModelDescription> model = Describe(config);
  if (!model.ok()) return model.status();
  return model->spec.attention_kinds[0].rope;
}

absl::StatusOr<RopeSpec> Rope(json::object scaling) {
  return RopeOfConfig(SmallConfig("llama", std::move(scaling)));
}

void CheckInvalid(const absl::StatusOr<RopeSpec>& rope, const char* want) {
  INFO(rope.status());
  CHECK(absl::IsInvalidArgument(rope.status()));
  CHECK(absl::StrContains(rope.status().message(), want));
}

TEST_CASE("Dynamic scaling changes nothing within the context", "[shard][model]") {
  const auto rope = Rope({{"rope_type", "dynamic"}, {"factor", 4}});
  REQUIRE(rope.ok());
  RopeSpec plain;
  plain.dims = 8;
  CHECK(RopeInverseFrequencies(*rope) == RopeInverseFrequencies(plain));
  CHECK(rope->attention_factor == 1.0f);
  CHECK_FALSE(Rope({{"rope_type", "dynamic"}}).ok());
  CheckInvalid(Rope({{"rope_type", "dynamic"}, {"factor", 0.5}}), "rope_scaling.factor: must be");
}

TEST_CASE("YaRN takes transformers' defaults", "[shard][model]") {
  auto rope = Rope({{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 128}});
  REQUIRE(rope.ok());
  CHECK(rope->scaling == RopeScalingKind::kYarn);
  CHECK(rope->original_context_tokens == 128);
  CHECK(rope->beta_fast == 32.0f);
  CHECK(rope->beta_slow == 1.0f);
  CHECK(rope->truncate);
  CHECK(rope->attention_factor == Approx(1 + 0.1 * std::log(4)));
  // Without an original context it is the longest, without a factor their quotient.
  CHECK(Rope({{"type", "yarn"}, {"factor", 4}})->original_context_tokens == 512);
  rope = Rope({{"type", "yarn"}, {"original_max_position_embeddings", 128}});
  CHECK(rope->factor == 4.0f);
  rope = Rope({{"type", "yarn"}, {"factor", 4}, {"mscale", 2}, {"mscale_all_dim", 1}});
  const double ratio = (1 + 0.2 * std::log(4)) / (1 + 0.1 * std::log(4));
  CHECK(rope->attention_factor == Approx(ratio));
  rope = Rope({{"type", "yarn"}, {"factor", 4}, {"attention_factor", 1.5}, {"truncate", false}});
  CHECK(rope->attention_factor == 1.5f);
  CHECK_FALSE(rope->truncate);
}

TEST_CASE("Impossible YaRN settings are refused by key", "[shard][model]") {
  const auto with = [](const char* key, json::value value) {
    json::object scaling = {{"type", "yarn"}, {"factor", 4}};
    scaling[key] = std::move(value);
    return Rope(scaling);
  };
  CheckInvalid(with("beta_slow", 0), "rope_scaling.beta_slow: must be above 0, found 0");
  CheckInvalid(with("beta_fast", 0.5), "rope_scaling.beta_fast: must be at least beta_slow 1");
  CheckInvalid(with("attention_factor", -1), "attention_factor: must be a finite number above 0");
  CheckInvalid(with("original_max_position_embeddings", 0), "must be from 1 to");
  CheckInvalid(with("rope_theta", 1), "must be above 1 with yarn, found 1");
  CHECK_FALSE(with("truncate", 1).ok());
}

json::object Longrope() {
  return {{"rope_type", "longrope"},
          {"original_max_position_embeddings", 64},
          {"short_factor", {1, 1, 1, 2}},
          {"long_factor", {1, 2, 3, 4}}};
}

TEST_CASE("longrope takes the factors for the longest context", "[shard][model]") {
  auto rope = Rope(Longrope());
  REQUIRE(rope.ok());
  CHECK(rope->frequency_factors == std::vector<float>{1, 2, 3, 4});
  CHECK(rope->attention_factor == Approx(std::sqrt(1 + std::log(8.0) / std::log(64.0))));
  // What is beside the settings counts first.
  json::object config = SmallConfig("llama", Longrope());
  config["original_max_position_embeddings"] = 512;
  rope = RopeOfConfig(config);
  REQUIRE(rope.ok());
  CHECK(rope->frequency_factors == std::vector<float>{1, 1, 1, 2});
  CHECK(rope->attention_factor == 1.0f);
  // What the first Phi-3 files call it.
  for (const char* name : {"su", "yarn"}) {
    json::object scaling = Longrope();
    scaling["rope_type"] = name;
    CHECK(Rope(scaling)->frequency_factors == std::vector<float>{1, 2, 3, 4});
  }
}

TEST_CASE("longrope without its factors is refused by key", "[shard][model]") {
  json::object scaling = Longrope();
  scaling["long_factor"] = {1, 2, 3};
  CheckInvalid(Rope(scaling), "rope_scaling.long_factor: expected 4 numbers (half of the 8 rotary");
  scaling["long_factor"] = {1, 2, 3, 0};
  CheckInvalid(
      Rope(scaling),
      "rope_scaling.long_factor or short_factor: expected positive finite numbers, found 0");
  scaling["long_factor"] = {1, 2, 3, "x"};
  CheckInvalid(Rope(scaling), "rope_scaling.long_factor: expected a list of numbers");
  scaling["original_max_position_embeddings"] = 1;
  CheckInvalid(Rope(scaling), "must be at least 2 with longrope, found 1");
}

GgufBuilder SmallGguf() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint("llama.block_count", 1)
      .Uint("llama.embedding_length", 32)
      .Uint("llama.feed_forward_length", 96)
      .Uint("llama.context_length", 512)
      .Uint("llama.attention.head_count", 4)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Uint("llama.rope.scaling.original_context_length", 64)
      .Tensor("token_embd.weight", {32, 10}, 0, std::string(32 * 10 * 4, '\0'));
  return builder;
}

absl::StatusOr<RopeSpec> RopeOfGguf(const GgufBuilder& builder) {
  const test::TempDir dir;
  const auto file = GgufFile::Open(dir.Write("m.gguf", builder.Build()));
  REQUIRE(file.ok());
  const absl::StatusOr<ModelDescription> model = DescribeGgufModel(**file);
  if (!model.ok()) return model.status();
  return model->spec.attention_kinds[0].rope;
}

GgufBuilder YarnGguf() {
  return SmallGguf()
      .String("llama.rope.scaling.type", "yarn")
      .Float("llama.rope.scaling.factor", 8);
}

TEST_CASE("YaRN of GGUF files", "[shard][model][gguf]") {
  auto rope = RopeOfGguf(YarnGguf());
  REQUIRE(rope.ok());
  CHECK(rope->scaling == RopeScalingKind::kYarn);
  CHECK(rope->attention_factor == Approx(1 + 0.1 * std::log(8.0)));
  rope = RopeOfGguf(YarnGguf()
                        .Float("llama.rope.scaling.yarn_beta_fast", 16)
                        .Float("llama.rope.scaling.yarn_beta_slow", 2)
                        .Float("llama.rope.scaling.attn_factor", 2));
  REQUIRE(rope.ok());
  CHECK(rope->beta_fast == 16.0f);
  CHECK(rope->beta_slow == 2.0f);
  CHECK(rope->attention_factor == Approx(2 * (1 + 0.1 * std::log(8.0))));
  for (const char* key : {"yarn_log_multiplier", "yarn_ext_factor", "yarn_attn_factor"}) {
    const std::string whole = std::string("llama.rope.scaling.") + key;
    const absl::Status status = RopeOfGguf(YarnGguf().Float(whole, 1)).status();
    CHECK(absl::IsUnimplemented(status));
    CHECK(absl::StrContains(status.message(), whole));
  }
}

std::string Factors(float last) {
  return test::Raw(1.0f) + test::Raw(2.0f) + test::Raw(3.0f) + test::Raw(last) +
         std::string(16, '\0');
}

TEST_CASE("longrope of GGUF files takes the factors for the longest context",
          "[shard][model][gguf]") {
  const auto with = [](GgufBuilder builder) {
    return RopeOfGguf(builder.Tensor("rope_factors_long.weight", {4}, 0, Factors(9).substr(0, 16))
                          .Tensor("rope_factors_short.weight", {4}, 0, Factors(4).substr(0, 16))
                          .Float("llama.rope.scaling.attn_factor", 1.25f));
  };
  auto rope = with(SmallGguf());
  INFO(rope.status());
  REQUIRE(rope.ok());
  CHECK(rope->frequency_factors == std::vector<float>{1, 2, 3, 9});
  CHECK(rope->attention_factor == 1.25f);
  const absl::Status both = with(YarnGguf()).status();
  CHECK(absl::StrContains(both.message(), "rope_factors_long.weight: is not supported together"));
}

}  // namespace
}  // namespace weft::shard

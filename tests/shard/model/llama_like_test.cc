// Families whose configuration follows Llama's: what each of them says by itself. Their numbers are
// those of tests/goldens.

#include <catch2/catch.hpp>
#include <vector>

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

json::object SmallConfig(const char* family) {
  return {{"model_type", family},          {"hidden_size", 64},       {"num_hidden_layers", 2},
          {"num_attention_heads", 32},     {"intermediate_size", 96}, {"vocab_size", 100},
          {"max_position_embeddings", 512}};
}

void CheckRefused(const json::object& config, const char* want) {
  const absl::Status status = Describe(config).status();
  INFO(status);
  CHECK(absl::IsUnimplemented(status));
  CHECK(absl::StrContains(status.message(), want));
}

TEST_CASE("A minimal Mistral config without a window takes transformers' defaults",
          "[shard][model]") {
  json::object config = SmallConfig("mistral");
  config["sliding_window"] = nullptr;
  const auto model = Describe(config);
  REQUIRE(model.ok());
  CHECK(model->spec.family == "mistral");
  CHECK(model->spec.kv_heads == 8);
  CHECK(model->spec.norm_epsilon == 1e-6f);
  CHECK_FALSE(model->spec.qkv_bias);
  // Biases are no part of it, whatever the file says of them.
  config["attention_bias"] = true;
  CHECK_FALSE(Describe(config)->spec.qkv_bias);
}

void CheckInvalid(const json::object& config, const char* want) {
  const absl::Status status = Describe(config).status();
  INFO(status);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StrContains(status.message(), want));
}

TEST_CASE("A Mistral window is that of all layers where it is shorter than the context",
          "[shard][model]") {
  json::object config = SmallConfig("mistral");
  const auto window = [&config] {
    const auto model = Describe(config);
    REQUIRE(model.ok());
    CHECK(model->spec.attention_kinds.size() == 1);
    CHECK(model->spec.layer_attention.empty());
    return model->spec.attention(1).window_tokens;
  };
  // transformers' default is a window of 4096.
  CHECK(window() == 0);
  config["max_position_embeddings"] = 8192;
  CHECK(window() == 4096);
  config["sliding_window"] = 8191;
  CHECK(window() == 8191);
  config["sliding_window"] = 8192;
  CHECK(window() == 0);
  config["sliding_window"] = nullptr;
  CHECK(window() == 0);
  config["sliding_window"] = "long";
  CHECK(absl::IsInvalidArgument(Describe(config).status()));
  config["sliding_window"] = 0;
  CheckInvalid(config, "config.json: sliding_window: must be null or at least 1 token, found 0");
}

TEST_CASE("Heads of an odd size are refused", "[shard][model]") {
  json::object config = SmallConfig("llama");
  config["head_dim"] = 13;
  CheckInvalid(config, "config.json: head_dim: the size of a head must be even, found 13");
  config = SmallConfig("gpt2");
  config["n_embd"] = 39;
  config["n_head"] = 3;
  config["n_layer"] = 1;
  config["n_positions"] = 64;
  CheckInvalid(config, "the size of a head must be even, found 13");
}

TEST_CASE("Experts' numbers are held against their ranges", "[shard][model]") {
  json::object config = SmallConfig("mixtral");
  CHECK(absl::IsNotFound(Describe(config).status()));
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  const auto mixtral = Describe(config);
  REQUIRE(mixtral.ok());
  CHECK(mixtral->spec.experts.hidden == 96);
  CHECK(mixtral->spec.experts.renormalised);
  // 2 layers of 8 experts with 3 matrices, a router, 4 of attention, 2 norms; 3 outside.
  CHECK(mixtral->params.size() == 2 * (8 * 3 + 1 + 4 + 2) + 3);
  config["num_experts_per_tok"] = 9;
  CheckInvalid(config, "config.json: num_experts_per_tok: must be from 1 to 8, found 9");
  config["num_local_experts"] = 0;
  CheckInvalid(config, "config.json: num_local_experts: must be from 1 to 1024, found 0");
  config["num_local_experts"] = 64;
  config["num_experts_per_tok"] = 33;
  CheckInvalid(config, "config.json: num_experts_per_tok: must be from 1 to 32, found 33");
}

TEST_CASE("Layers that have no experts are found by either key", "[shard][model]") {
  json::object config = SmallConfig("qwen2_moe");
  config["num_hidden_layers"] = 4;
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 32;
  config["shared_expert_intermediate_size"] = 48;
  const auto plain = [&config] { return Describe(config)->spec.experts.plain_layers; };
  CHECK(plain().empty());
  config["decoder_sparse_step"] = 2;
  CHECK(plain() == std::vector<bool>{true, false, true, false});
  config["mlp_only_layers"] = {1};
  CHECK(plain() == std::vector<bool>{true, true, true, false});
  config["mlp_only_layers"] = {1, 3};
  CheckInvalid(config, "config.json: mlp_only_layers: leaves no layer its experts");
  config["decoder_sparse_step"] = 0;
  CheckInvalid(config, "config.json: decoder_sparse_step: must be from 1 to 1024, found 0");
  config["decoder_sparse_step"] = 1;
  const auto model = Describe(config);
  REQUIRE(model.ok());
  CHECK_FALSE(model->spec.experts.renormalised);
  CHECK(model->spec.experts.shared_scale);
  CHECK(model->spec.HasExperts(0));
  CHECK_FALSE(model->spec.HasExperts(1));
  config["norm_topk_prob"] = true;
  CHECK(Describe(config)->spec.experts.renormalised);
}

TEST_CASE("A minimal Qwen2 config takes transformers' defaults", "[shard][model]") {
  const auto model = Describe(SmallConfig("qwen2"));
  REQUIRE(model.ok());
  CHECK(model->spec.family == "qwen2");
  CHECK(model->spec.kv_heads == 32);
  CHECK(model->spec.qkv_bias);
  CHECK_FALSE(model->spec.output_bias);
  CHECK_FALSE(model->spec.mlp_bias);
  // A window that is not used does not count.
  json::object config = SmallConfig("qwen2");
  config["sliding_window"] = 128;
  config["use_sliding_window"] = false;
  config["layer_types"] = {"full_attention", "full_attention"};
  CHECK(Describe(config).ok());
}

TEST_CASE("Qwen2 layers from max_window_layers on have the window", "[shard][model]") {
  json::object config = SmallConfig("qwen2");
  config["num_hidden_layers"] = 3;
  config["use_sliding_window"] = true;
  config["sliding_window"] = 100;
  const auto windows = [&config] {
    const auto model = Describe(config);
    REQUIRE(model.ok());
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < 3; ++i) out.push_back(model->spec.attention(i).window_tokens);
    CHECK(model->spec.attention(2).rope.dims == 2);
    return out;
  };
  // By default the first 28.
  CHECK(windows() == std::vector<uint32_t>{0, 0, 0});
  config["max_window_layers"] = 1;
  CHECK(windows() == std::vector<uint32_t>{0, 100, 100});
  config["max_window_layers"] = 0;
  CHECK(windows() == std::vector<uint32_t>{100, 100, 100});
  config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  CHECK(windows() == std::vector<uint32_t>{100, 0, 100});
  config["sliding_window"] = 512;
  CHECK(windows() == std::vector<uint32_t>{0, 0, 0});
}

TEST_CASE("Qwen2 windows that say two things and other classes are refused by key",
          "[shard][model]") {
  json::object config = SmallConfig("qwen2");
  config["layer_types"] = {"full_attention", "sliding_attention"};
  CheckInvalid(config, "layer_types: \"sliding_attention\" needs use_sliding_window and a window");
  config["use_sliding_window"] = true;
  config["layer_types"] = {"full_attention"};
  CheckInvalid(config, "layer_types: must have one entry for each of the 2 layers, found 1");
  config["layer_types"] = {"full_attention", "chunked_attention"};
  CheckRefused(config, "layer_types: \"chunked_attention\" is not supported; known are: full_");
  config = SmallConfig("qwen2");
  config["architectures"] = {"Qwen2ForRewardModel"};
  CheckRefused(config, "\"Qwen2ForRewardModel\" is not supported; known is: Qwen2ForCausalLM");
}

TEST_CASE("GGUF keys carry the family's name", "[shard][model][gguf]") {
  GgufBuilder builder;
  builder.String("general.architecture", "qwen2")
      .Uint("qwen2.block_count", 1)
      .Uint("qwen2.embedding_length", 64)
      .Uint("qwen2.feed_forward_length", 96)
      .Uint("qwen2.context_length", 512)
      .Uint("qwen2.attention.head_count", 4)
      .Float("qwen2.attention.layer_norm_rms_epsilon", 1e-5f)
      .Float("qwen2.rope.freq_base", 1e6f)
      .Tensor("token_embd.weight", {64, 10}, 0, std::string(64 * 10 * 4, '\0'));
  const auto describe = [](const GgufBuilder& file) {
    const test::TempDir dir;
    return DescribeGgufModel(**GgufFile::Open(dir.Write("m.gguf", file.Build())));
  };
  const auto model = describe(builder);
  REQUIRE(model.ok());
  CHECK(model->spec.attention_kinds[0].rope.theta == 1e6f);
  for (const ParamTensor& param : model->params) CHECK(param.row_order == RowOrder::kPlain);
  const absl::Status status = describe(builder.Uint("qwen2.expert_count", 2)).status();
  CHECK(absl::StrContains(status.message(), "m.gguf: qwen2.expert_count: 2 is not supported"));
}

}  // namespace
}  // namespace weft::shard

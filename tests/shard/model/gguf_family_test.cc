// What GGUF metadata of the families say besides sizes, and what of it is refused by key. What they
// compute is held against transformers by the tiny models of tests/goldens.

#include "shard/model/families/gguf_family.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "shard/model/families/registry.h"
#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"

namespace weft::shard {
namespace {

using test::GgufBuilder;

GgufBuilder SmallGguf(const std::string& architecture, uint32_t layers = 2) {
  GgufBuilder builder;
  builder.String("general.architecture", architecture)
      .Uint(architecture + ".block_count", layers)
      .Uint(architecture + ".embedding_length", 48)
      .Uint(architecture + ".feed_forward_length", 96)
      .Uint(architecture + ".context_length", 512)
      .Uint(architecture + ".attention.head_count", 4)
      .Uint(architecture + ".attention.key_length", 16)
      .Uint(architecture + ".attention.value_length", 16)
      .Float(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f)
      .Float(architecture + ".attention.layer_norm_epsilon", 1e-4f)
      .Tensor("token_embd.weight", {48, 10}, 0, std::string(48 * 10 * 4, '\0'));
  return builder;
}

absl::StatusOr<ModelDescription> Describe(const GgufBuilder& builder) {
  const test::TempDir dir;
  const auto file = GgufFile::Open(dir.Write("m.gguf", builder.Build()));
  REQUIRE(file.ok());
  return DescribeGgufModel(**file);
}

void CheckRefused(const GgufBuilder& builder, const char* want) {
  const absl::Status status = Describe(builder).status();
  INFO(status);
  CHECK_FALSE(status.ok());
  CHECK(absl::StrContains(status.message(), "/m.gguf: "));
  CHECK(absl::StrContains(status.message(), want));
}

TEST_CASE("Windows of Gemma's GGUF files follow the layers' pattern", "[shard][model][gguf]") {
  const auto windows = [](const GgufBuilder& builder) {
    const auto model = Describe(builder);
    INFO(model.status());
    REQUIRE(model.ok());
    std::string out;
    for (uint32_t i = 0; i < model->spec.layers; ++i) {
      absl::StrAppend(&out, model->spec.attention(i).window_tokens, " ");
    }
    return out;
  };
  constexpr char kWindow2[] = "gemma2.attention.sliding_window";
  constexpr char kWindow3[] = "gemma3.attention.sliding_window";
  CHECK(windows(SmallGguf("gemma2", 3).Uint(kWindow2, 40)) == "40 0 40 ");
  CHECK(windows(SmallGguf("gemma3", 7).Uint(kWindow3, 40)) == "40 40 40 40 40 0 40 ");
  CHECK(windows(SmallGguf("gemma3", 4)
                    .Uint(kWindow3, 40)
                    .Uint("gemma3.attention.sliding_window_pattern", 2)) == "40 0 40 0 ");
  // A window that the context never exceeds is none; the base of its layers stays.
  const auto model = Describe(SmallGguf("gemma3")
                                  .Uint(kWindow3, 512)
                                  .Float("gemma3.rope.freq_base", 1e6f)
                                  .Float("gemma3.rope.freq_base_swa", 5000.0f));
  CHECK(model->spec.attention(0).window_tokens == 0);
  CHECK(model->spec.attention(0).rope.theta == 5000.0f);
  CHECK(model->spec.attention_kinds[0].rope.theta == 1e6f);
  CheckRefused(SmallGguf("gemma2").Uint(kWindow2, 0), "sliding_window: must be null or at least 1");
  CheckRefused(SmallGguf("gemma3").Uint(kWindow3, 0), "sliding_window: must be at least 1 token");
  CheckRefused(
      SmallGguf("gemma3").Uint(kWindow3, 9).Uint("gemma3.attention.sliding_window_pattern", 0),
      "sliding_window_pattern: must be at least 1, found 0");
  CheckRefused(SmallGguf("gemma2"), "has no key \"gemma2.attention.sliding_window\"");
}

TEST_CASE("Scores of the largest Gemmas are divided by another root", "[shard][model][gguf]") {
  const auto scale = [](const char* architecture, uint32_t layers) {
    const std::string window = absl::StrCat(architecture, ".attention.sliding_window");
    return Describe(SmallGguf(architecture, layers).Uint(window, 40))->spec.attention_scale;
  };
  CHECK(scale("gemma2", 45) == 0.25f);
  CHECK(scale("gemma2", 46) == Approx(1 / std::sqrt(12.0)));
  CHECK(scale("gemma3", 46) == 0.25f);
  CHECK(scale("gemma3", 62) == Approx(1 / std::sqrt(12.0)));
  CheckRefused(SmallGguf("gemma2")
                   .Uint("gemma2.attention.sliding_window", 40)
                   .Float("gemma2.final_logit_softcapping", NAN),
               "final_logit_softcapping: must be a number of at least 0");
}

TEST_CASE("A Phi-3 window of 0 in a GGUF file is none", "[shard][model][gguf]") {
  const auto window = [](uint32_t tokens) {
    return Describe(SmallGguf("phi3").Uint("phi3.attention.sliding_window", tokens))
        ->spec.attention(1)
        .window_tokens;
  };
  CHECK(window(0) == 0);
  CHECK(window(40) == 40);
}

TEST_CASE("A window is refused where the family has none", "[shard][model][gguf]") {
  for (const char* family : {"qwen3", "stablelm", "starcoder2", "gptneox", "falcon"}) {
    const std::string key = absl::StrCat(family, ".attention.sliding_window");
    CheckRefused(SmallGguf(family).Uint(key, 40), "sliding_window: 40 is not supported; expected");
    CHECK(Describe(SmallGguf(family).Uint(key, 0)).ok());
  }
}

TEST_CASE("GPT-NeoX GGUF files say how the halves of a layer stand", "[shard][model][gguf]") {
  CHECK(Describe(SmallGguf("gptneox"))->spec.parallel_residual);
  const auto model = Describe(SmallGguf("gptneox").Key("gptneox.use_parallel_residual",
                                                       GgufBuilder::kBool, std::string(1, '\0')));
  CHECK_FALSE(model->spec.parallel_residual);
  CHECK(model->spec.norm_epsilon == 1e-4f);
}

TEST_CASE("StableLM GGUF files tell by their tensors how a layer is built",
          "[shard][model][gguf]") {
  // The key is true in files of 3B models, whose halves follow each other.
  const auto with = [](const char* name, std::vector<uint64_t> dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    GgufBuilder builder = SmallGguf("stablelm");
    builder.Key("stablelm.use_parallel_residual", GgufBuilder::kBool, std::string(1, '\1'))
        .Tensor(name, dims, 0, std::string(count * 4, '\0'));
    return builder;
  };
  CHECK_FALSE(Describe(with("blk.0.ffn_norm.weight", {48}))->spec.parallel_residual);
  const auto parallel = Describe(with("blk.0.attn_q.bias", {64}));
  REQUIRE(parallel.ok());
  CHECK(parallel->spec.shared_norm);
  CHECK(parallel->spec.qkv_bias);
  CheckRefused(with("blk.0.attn_q_norm.weight", {16, 4}),
               "tensor blk.0.attn_q_norm.weight: qk_layernorm, norms that each head has of its "
               "own, is not supported");
}

TEST_CASE("Falcon GGUF files with another order of rows are refused", "[shard][model][gguf]") {
  CHECK(Describe(SmallGguf("falcon").String("falcon.tensor_data_layout", "jploski")).ok());
  CheckRefused(SmallGguf("falcon").String("falcon.tensor_data_layout", "by_group"),
               "falcon.tensor_data_layout: \"by_group\" is not supported; known is: jploski");
}

}  // namespace
}  // namespace weft::shard

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "shard/weights/loader.h"
#include "shard/weights/mxfp4_rows.h"
#include "shard/weights/row_convert.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/model/describe_config.h"
#include "tests/shard/weights/collecting_sink.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

using test::Collected;
using test::ParamId;

// Of OCP's Microscaling formats, by code.
constexpr float kFp4[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                            -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

TEST_CASE("Codes two by two and an exponent become a block of the same numbers",
          "[shard][weights]") {
  for (const int exponent : {0, 1, 2, 100, 127, 130, 252}) {
    uint8_t codes[kMxfp4CodeBytes];
    std::vector<float> want;
    for (uint32_t i = 0; i < kMxfp4CodeBytes; ++i) {
      const uint32_t first = i * 7 % 16;
      const uint32_t second = (i * 5 + 3) % 16;
      codes[i] = static_cast<uint8_t>(first | second << 4);
      want.push_back(std::ldexp(kFp4[first], exponent - 127));
      want.push_back(std::ldexp(kFp4[second], exponent - 127));
    }
    uint8_t block[17];
    JoinMxfp4Block(codes, static_cast<uint8_t>(exponent), block);
    std::vector<float> got(kMxfp4Numbers);
    RowToFloat(TensorType::kMxfp4, block, kMxfp4Numbers, got.data());
    CHECK(got == want);
    // Bfloat16 holds each of them.
    std::vector<uint16_t> narrow(kMxfp4Numbers);
    RowToBf16(TensorType::kMxfp4, block, kMxfp4Numbers, narrow.data());
    for (size_t i = 0; i < want.size(); ++i) {
      CHECK(std::bit_cast<float>(uint32_t{narrow[i]} << 16) == want[i]);
    }
  }
}

std::map<ParamId, Collected> LoadAll(const std::string& name) {
  const auto files = ModelFiles::Open(test::GoldenModelPath(name));
  INFO(files.status());
  REQUIRE(files.ok());
  const auto plan = MakeSlicePlan((*files)->spec(), 0, 1, (*files)->mlp_multiple());
  REQUIRE(plan.ok());
  test::CollectingSink sink;
  LoadProgress progress;
  const std::atomic<bool> never{false};
  REQUIRE((*files)->Load(*plan, 2, sink, progress, never).ok());
  CHECK(progress.bytes_done == (*files)->SliceBytes(*plan));
  return sink.params();
}

TEST_CASE("Experts in MXFP4 of safetensors are those of the GGUF file, to the bit",
          "[shard][weights]") {
  const auto safetensors = LoadAll("gpt_oss_mxfp4");
  const auto gguf = LoadAll("gpt_oss_mxfp4_gguf");
  REQUIRE(safetensors.size() == gguf.size());
  int packed = 0;
  for (const auto& [id, a] : safetensors) {
    INFO("kind " << static_cast<int>(id.first) << " number " << id.second);
    const Collected& b = gguf.at(id);
    CHECK(a.values == b.values);
    const bool expert = id.first == ParamKind::kExpertGate || id.first == ParamKind::kExpertUp ||
                        id.first == ParamKind::kExpertDown;
    CHECK((a.type == TensorType::kMxfp4) == expert);
    // Routers alone are of another type in GGUF files.
    if (a.type == b.type) CHECK(a.bytes == b.bytes);
    packed += expert ? 1 : 0;
  }
  CHECK(packed == 2 * 6 * 3);
}

boost::json::object Config() { return test::ReadGolden("gpt_oss_mxfp4/config.json").as_object(); }

TEST_CASE("Another way of packing, and sizes that are no whole blocks, are refused by key",
          "[shard][weights]") {
  CHECK(Describe(Config()).ok());
  boost::json::object config = Config();
  config["quantization_config"] = {{"quant_method", "fp8"}};
  CHECK(absl::IsUnimplemented(Describe(config).status()));
  CHECK(absl::StrContains(Describe(config).status().message(),
                          "quantization_config.quant_method: \"fp8\" is not supported; known is: "
                          "mxfp4"));
  config["quantization_config"] = {{"quant_method", "mxfp4"}, {"group_size", 16}};
  CHECK(absl::StrContains(Describe(config).status().message(),
                          "quantization_config.group_size: is not supported with quant_method"));
  config["quantization_config"] = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", 4}};
  CHECK(absl::StrContains(Describe(config).status().message(),
                          "quantization_config.modules_to_not_convert"));
  config["quantization_config"] = boost::json::object{};
  CHECK(absl::StrContains(Describe(config).status().message(), "quant_method"));
  config["quantization_config"] = 4;
  CHECK(absl::StrContains(Describe(config).status().message(), "quantization_config"));
  for (const char* const key : {"hidden_size", "intermediate_size"}) {
    config = Config();
    config[key] = 80;
    CHECK(absl::StrContains(
        Describe(config).status().message(),
        absl::StrCat(key, ": must be a multiple of 32 with experts in MXFP4, found 80")));
  }
  // The same sizes are well without packed experts.
  config.erase("quantization_config");
  CHECK(Describe(config).ok());
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(absl::StrContains(text, from));
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Why a copy of the model is refused in whose first part and index `from` is `to`.
std::string RefusalWith(const std::string& from, const std::string& to) {
  const test::TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(test::GoldenPath("gpt_oss_mxfp4"))) {
    std::filesystem::copy(entry.path(), dir.path());
  }
  const std::string part = dir.path() + "/model-00001-of-00002.safetensors";
  const std::string index = dir.path() + "/model.safetensors.index.json";
  dir.Write("model-00001-of-00002.safetensors", Replaced(test::ReadFile(part), from, to));
  const std::string names = test::ReadFile(index);
  if (absl::StrContains(names, from)) {
    dir.Write("model.safetensors.index.json", Replaced(names, from, to));
  }
  const absl::Status status = ModelFiles::Open(dir.path()).status();
  CHECK_FALSE(status.ok());
  return std::string(status.message());
}

TEST_CASE("Tensors that do not make a matrix of MXFP4 are refused by name", "[shard][weights]") {
  const std::string experts = "tensor model.layers.0.mlp.experts.";
  CHECK(absl::StrContains(
      RefusalWith("0.mlp.experts.gate_up_proj_scales", "0.mlp.experts.gate_up_proj_scalez"),
      experts + "gate_up_proj_scales: expected [6, 320, 2] of U8, found no such tensor; "
                "quantization_config in config.json says"));
  CHECK(absl::StrContains(
      RefusalWith("0.mlp.experts.down_proj_blocks", "0.mlp.experts.down_proj_blockz"),
      experts + "down_proj_blocks: expected [6, 64, 5, 16] of U8, found no such tensor"));
  CHECK(absl::StrContains(
      RefusalWith("down_proj_blocks\":{\"dtype\":\"U8\"", "down_proj_blocks\":{\"dtype\":\"I8\""),
      experts + "down_proj_blocks: expected U8, found I8"));
  CHECK(absl::StrContains(RefusalWith("[6,64,5,16]", "[6,64,16,5]"),
                          experts + "down_proj_blocks: expected shape [6, 64, 5, 16], found [6, "
                                    "64, 16, 5]"));
  CHECK(absl::StrContains(RefusalWith("[6,320,2]", "[6,2,320]"),
                          experts + "gate_up_proj_scales: expected shape [6, 320, 2], found [6, 2, "
                                    "320]"));
}

TEST_CASE("Experts in MXFP4 and a configuration that does not fit are told of each other",
          "[shard][weights]") {
  const test::TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(test::GoldenPath("gpt_oss_mxfp4"))) {
    std::filesystem::copy(entry.path(), dir.path());
  }
  const auto refusal = [&dir] {
    return std::string(ModelFiles::Open(dir.path()).status().message());
  };
  const std::string config = test::ReadFile(dir.path() + "/config.json");
  boost::json::object plain = boost::json::parse(config).as_object();
  plain.erase("quantization_config");
  dir.Write("config.json", boost::json::serialize(plain));
  CHECK(absl::StrContains(refusal(),
                          "gate_up_proj: expected [6, 64, 320], found no such tensor but blocks of "
                          "MXFP4; they need quantization_config"));
  // Blanks keep the header's length.
  dir.Write("config.json", config);
  const std::string part = "model-00001-of-00002.safetensors";
  dir.Write(part, Replaced(test::ReadFile(dir.path() + "/" + part),
                           "layers.0.mlp.experts.down_proj_blocks\":{",
                           "layers.0.mlp.experts.down_proj\":{       "));
  const std::string index = "model.safetensors.index.json";
  dir.Write(index,
            Replaced(test::ReadFile(dir.path() + "/" + index),
                     "layers.0.mlp.experts.down_proj_blocks", "layers.0.mlp.experts.down_proj"));
  CHECK(absl::StrContains(refusal(),
                          "down_proj: experts that are not in MXFP4 are not supported beside"));
}

TEST_CASE("A tensor that has not the bytes of its shape is refused", "[shard][weights]") {
  const std::string header =
      test::ReadFile(test::GoldenPath("gpt_oss_mxfp4/model-00001-of-00002.safetensors"));
  // Where the blocks of a matrix end and its scales begin: a byte goes from those to these.
  const std::string scales = "model.layers.0.mlp.experts.down_proj_scales";
  const size_t begin = header.find('[', header.find("data_offsets", header.find(scales))) + 1;
  const std::string border = header.substr(begin, header.find(',', begin) - begin);
  const std::string before = absl::StrCat(std::stoul(border) - 1);
  REQUIRE(before.size() == border.size());
  CHECK(absl::StrContains(
      RefusalWith(border, before),
      absl::StrCat("tensor ", scales, ": expected 1920 bytes, found 1921; the file is damaged")));
}

}  // namespace
}  // namespace weft::shard

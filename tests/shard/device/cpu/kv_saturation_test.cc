// Keys beyond float16's range are counted in each step and warned of once an epoch, which names the
// way out; other types of KV hold them.

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "boost/json.hpp"
#include "tests/common/log_lines.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

// A copy of the golden model of float16 weights in which the first row of a layer's key matrix is
// 60000 throughout.
void CopyWithLargeKeys(const test::TempDir& dir) {
  const std::string golden = test::GoldenPath("llama_nine_heads_f16");
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    std::filesystem::copy(entry.path(), dir.path());
  }
  std::string file = test::ReadFile(dir.path() + "/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const boost::json::value header = boost::json::parse(file.substr(8, header_bytes));
  const boost::json::value& tensor = header.at("model.layers.1.self_attn.k_proj.weight");
  REQUIRE(tensor.at("dtype").as_string() == "F16");
  const auto columns = tensor.at("shape").at(1).to_number<uint64_t>();
  const auto begin = 8 + header_bytes + tensor.at("data_offsets").at(0).to_number<uint64_t>();
  constexpr uint16_t k60000 = 0x7b53;
  for (uint64_t i = 0; i < columns; ++i) {
    std::memcpy(file.data() + begin + i * sizeof(k60000), &k60000, sizeof(k60000));
  }
  dir.Write("model.safetensors", file);
}

StepResult RunPrompt(RankGroup& group) {
  StepMaker maker = group.Maker();
  maker.Start(0, SamplingParams{});
  maker.Chunk(0, {3, 1, 4, 15, 92, 65, 35}, /*sample=*/true);
  return group.Run(maker.Take());
}

constexpr char kWarning[] = "--kv-dtype float32";

TEST_CASE("Keys that float16 cannot hold are counted in every step and warned of once an epoch",
          "[shard][compute]") {
  const test::TempDir dir;
  CopyWithLargeKeys(dir);
  for (const std::string& isa : SupportedInstructionSets()) {
    for (const uint32_t threads : {1u, 2u}) {
      INFO(isa << " threads " << threads);
      const test::LogLines log;
      GroupOptions options;
      options.model = dir.path();
      options.kv_dtype = NumberType::kFloat16;
      options.isa = isa;
      options.threads = threads;
      RankGroup group(options);
      // The warm-up's own prompts met them.
      CHECK(log.Count(kWarning) == 1);
      const StepResult first = RunPrompt(group);
      CHECK(first.kv_saturated > 0);
      CHECK(RunPrompt(group).kv_saturated == first.kv_saturated);
      CHECK(log.Count(kWarning) == 1);
      group.NewEpoch(isa);
      CHECK(log.Count(kWarning) == 2);
    }
  }
}

TEST_CASE("KV types of float32's range, and models of ordinary keys, count and warn of nothing",
          "[shard][compute]") {
  const test::TempDir dir;
  CopyWithLargeKeys(dir);
  const struct {
    std::string model;
    NumberType kv;
  } cases[] = {{dir.path(), NumberType::kFloat32},
               {dir.path(), NumberType::kBfloat16},
               {test::GoldenPath("llama_nine_heads_f16"), NumberType::kFloat16}};
  for (const auto& given : cases) {
    const test::LogLines log;
    GroupOptions options;
    options.model = given.model;
    options.kv_dtype = given.kv;
    RankGroup group(options);
    INFO(given.model << " " << NumberTypeName(given.kv));
    CHECK(RunPrompt(group).kv_saturated == 0);
    CHECK(log.Count(kWarning) == 0);
  }
}

}  // namespace
}  // namespace weft::shard

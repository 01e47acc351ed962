// The tiny models and the demo model against Hugging Face transformers in float32.

#include <catch2/catch.hpp>
#include <string>

#include "tests/shard/device/cpu/golden_check.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

TEST_CASE("Tiny models agree with transformers in float32 on one to four ranks",
          "[shard][compute][golden][long]") {
  for (const std::string& name : test::GoldenModels()) {
    for (uint32_t world = 1; world <= test::GoldenRanksMax(name); ++world) {
      DYNAMIC_SECTION(name << " on " << world) {
        GroupOptions options;
        options.model = test::GoldenModelPath(name);
        options.world = world;
        CheckModel(name, options);
      }
    }
  }
}

TEST_CASE("Tiny models agree with transformers on every instruction set",
          "[shard][compute][golden][long]") {
  for (const std::string& isa : SupportedInstructionSets()) {
    for (const std::string& name : test::GoldenModels()) {
      DYNAMIC_SECTION(name << " on " << isa) {
        GroupOptions options;
        options.model = test::GoldenModelPath(name);
        options.isa = isa;
        options.threads = 2;
        RankGroup group(options);
        CHECK(group.cpu(0).isa() == isa);
        CheckModel(name, options);
      }
    }
  }
}

TEST_CASE("Tiny models in bfloat16 stay near transformers", "[shard][compute][golden]") {
  for (const std::string& name : test::GoldenModels()) {
    DYNAMIC_SECTION(name) {
      GroupOptions options;
      options.model = test::GoldenModelPath(name);
      options.dtype = NumberType::kBfloat16;
      CheckModel(name, options, Bfloat16Error(name), /*greedy=*/false);
    }
  }
}

GroupOptions Demo(NumberType dtype) {
  GroupOptions options;
  options.dtype = dtype;
  options.threads = 2;
  return options;
}

TEST_CASE("The demo model in float32 continues as transformers", "[shard][compute][demo][long]") {
  const Agreement agreement = CompareDemo(Demo(NumberType::kFloat32), 1e-4);
  CHECK(agreement.cases == 50);
  CHECK(agreement.unexplained == 0);
}

TEST_CASE("The demo model in its default type mostly continues as in float32",
          "[shard][compute][demo][long]") {
  const Agreement agreement = CompareDemo(Demo(NumberType::kAuto), 1.0);
  CHECK(agreement.cases == 50);
  CHECK(agreement.equal >= 40);
}

}  // namespace
}  // namespace weft::shard

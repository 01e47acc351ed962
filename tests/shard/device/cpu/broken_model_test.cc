// A model whose weights hold NaN never begins to serve: its warm-up says so by name, on all ranks.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/common/temp_dir.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

// A copy of the golden model in which one number, of the last tensor of the file, is `half`.
void CopyBroken(const test::TempDir& dir, uint16_t half) {
  for (const auto& entry :
       std::filesystem::directory_iterator(test::GoldenPath("llama_nine_heads_f16"))) {
    std::filesystem::copy(entry.path(), dir.path());
  }
  std::string weights = test::ReadFile(dir.path() + "/model.safetensors");
  weights[weights.size() - 2] = static_cast<char>(half & 0xff);
  weights[weights.size() - 1] = static_cast<char>(half >> 8);
  dir.Write("model.safetensors", weights);
}

TEST_CASE("A model with NaN or infinity in its weights is refused in the warm-up",
          "[shard][compute]") {
  constexpr uint16_t kNan = 0x7e00;
  constexpr uint16_t kInfinity = 0x7c00;
  for (const uint16_t half : {kNan, kInfinity}) {
    for (const uint32_t world : {1u, 2u}) {
      const test::TempDir dir;
      CopyBroken(dir, half);
      GroupOptions options;
      options.model = dir.path();
      options.world = world;
      CHECK_THROWS_WITH(RankGroup(options), Catch::Contains("DATA_LOSS") &&
                                                Catch::Contains("NaN or infinity in its weights"));
    }
  }
}

}  // namespace
}  // namespace weft::shard

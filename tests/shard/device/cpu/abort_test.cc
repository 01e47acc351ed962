// A step on the CPU that nobody waits for any more, of a rank that waits for no other one.

#include <catch2/catch.hpp>

#include "absl/status/status.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

TEST_CASE("A step of an aborted epoch computes nothing more, also in a group of one",
          "[shard][compute]") {
  GroupOptions options;
  options.model = test::GoldenPath("llama_nine_heads_f16");
  RankGroup group(options);
  const auto run = [&group] {
    StepMaker maker = group.Maker();
    maker.Start(0, SamplingParams{});
    maker.Chunk(0, {3, 1, 4, 15, 92, 65, 35}, /*sample=*/true);
    return group.rank(0).Run(maker.Take());
  };
  REQUIRE(run().ok());
  group.rank(0).Abort();
  group.NewEpoch(options.isa);
  // The next epoch is not the one that was aborted.
  REQUIRE(run().ok());
  group.NewEpoch(options.isa);
  group.rank(0).Abort();
  CHECK(absl::IsAborted(run().status()));
}

}  // namespace
}  // namespace weft::shard

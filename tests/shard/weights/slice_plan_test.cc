#include "shard/weights/slice_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace weft::shard {
namespace {

DecoderSpec Spec(uint32_t heads, uint32_t kv_heads, uint32_t mlp, uint32_t vocab) {
  DecoderSpec spec;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = 64;
  spec.mlp_hidden = mlp;
  spec.vocab = vocab;
  return spec;
}

std::vector<SlicePlan> Plans(const DecoderSpec& spec, uint32_t world, uint32_t mlp_multiple) {
  std::vector<SlicePlan> out;
  for (Rank rank = 0; rank < world; ++rank) {
    auto plan = MakeSlicePlan(spec, rank, world, mlp_multiple);
    REQUIRE(plan.ok());
    out.push_back(*std::move(plan));
  }
  return out;
}

// Ranges follow each other from 0 to `count`, none empty, sizes within `spread` of each other.
void CheckTiles(const std::vector<SlicePlan>& plans, Range SlicePlan::*range, uint32_t count,
                uint32_t spread) {
  uint32_t end = 0;
  uint32_t smallest = count;
  uint32_t largest = 0;
  for (const SlicePlan& plan : plans) {
    REQUIRE((plan.*range).begin == end);
    REQUIRE((plan.*range).size() > 0);
    end = (plan.*range).end;
    smallest = std::min(smallest, (plan.*range).size());
    largest = std::max(largest, (plan.*range).size());
  }
  REQUIRE(end == count);
  REQUIRE(largest - smallest <= spread);
}

TEST_CASE("The demo model's heads split unevenly and share KV heads", "[shard][weights]") {
  const DecoderSpec spec = Spec(9, 3, 1536, 49152);
  const std::vector<SlicePlan> two = Plans(spec, 2, 32);
  CHECK(two[0].heads.size() == 5);
  CHECK(two[1].heads.size() == 4);
  CHECK(two[0].kv_heads.begin == 0);
  CHECK(two[0].kv_heads.end == 2);
  CHECK(two[1].kv_heads.begin == 1);
  CHECK(two[1].kv_heads.end == 3);
  CHECK(two[0].kv_head_of == std::vector<uint32_t>{0, 0, 0, 1, 1});
  CHECK(two[1].kv_head_of == std::vector<uint32_t>{0, 1, 1, 1});
  CHECK(two[1].mlp.begin == 768);
  CHECK(two[1].vocab.begin == 24576);
  const std::vector<SlicePlan> four = Plans(spec, 4, 32);
  CHECK(four[0].heads.size() == 3);
  CHECK(four[1].heads.size() == 2);
  CHECK(four[2].heads.size() == 2);
  CHECK(four[3].heads.size() == 2);
}

TEST_CASE("Slices tile the model at every shard count that is accepted", "[shard][weights]") {
  int accepted = 0;
  for (uint32_t kv_heads = 1; kv_heads <= 8; ++kv_heads) {
    for (uint32_t group = 1; group <= 4; ++group) {
      for (const uint32_t blocks : {1u, 3u, 5u, 48u}) {
        for (const uint32_t multiple : {1u, 32u}) {
          const DecoderSpec spec = Spec(kv_heads * group, kv_heads, blocks * multiple, 211);
          for (uint32_t world = 1; world <= 9; ++world) {
            const bool fits = world <= spec.heads && world <= blocks;
            REQUIRE(MakeSlicePlan(spec, world - 1, world, multiple).ok() == fits);
            if (!fits) continue;
            ++accepted;
            const std::vector<SlicePlan> plans = Plans(spec, world, multiple);
            CheckTiles(plans, &SlicePlan::heads, spec.heads, 1);
            CheckTiles(plans, &SlicePlan::mlp, spec.mlp_hidden, multiple);
            CheckTiles(plans, &SlicePlan::vocab, spec.vocab, 1);
            for (const SlicePlan& plan : plans) {
              REQUIRE(plan.mlp.begin % multiple == 0);
              REQUIRE(plan.kv_head_of.size() == plan.heads.size());
              std::vector<bool> used(plan.kv_heads.size());
              for (uint32_t i = 0; i < plan.heads.size(); ++i) {
                const uint32_t kv = plan.kv_heads.begin + plan.kv_head_of[i];
                REQUIRE(kv == (plan.heads.begin + i) / group);
                used.at(plan.kv_head_of[i]) = true;
              }
              // No KV head that nobody asks for.
              REQUIRE(std::find(used.begin(), used.end(), false) == used.end());
            }
          }
        }
      }
    }
  }
  CHECK(accepted > 500);
}

TEST_CASE("Too many shards are refused with the counts that work", "[shard][weights]") {
  const DecoderSpec spec = Spec(9, 3, 1536, 49152);
  const absl::Status heads = MakeSlicePlan(spec, 0, 10, 32).status();
  CHECK(absl::IsInvalidArgument(heads));
  CHECK(absl::StrContains(heads.message(), "10 shards are too many"));
  CHECK(absl::StrContains(heads.message(), "9 query heads"));
  CHECK(absl::StrContains(heads.message(), "1 to 9 shards would work"));
  const absl::Status blocks = MakeSlicePlan(Spec(9, 3, 96, 49152), 0, 4, 32).status();
  CHECK(absl::StrContains(blocks.message(), "3 MLP blocks of 32 columns; 1 to 3 shards"));
  CHECK(absl::StrContains(MakeSlicePlan(spec, 2, 2, 32).status().message(), "rank 2 is outside"));
  CHECK_FALSE(MakeSlicePlan(spec, 0, 0, 32).ok());
  CHECK(absl::StrContains(MakeSlicePlan(Spec(9, 3, 100, 10), 0, 1, 32).status().message(),
                          "100 columns cannot be cut at multiples of 32"));
}

}  // namespace
}  // namespace weft::shard

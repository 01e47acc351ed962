#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

#include "tests/kernels/cuda/attention/decode_attention_rig.h"

namespace weft::kernels::cuda::decode_testing {
namespace {

// bf16 values meet weights rounded to bf16, each off by up to 2^-9: that is seen in a float32
// output, and random from weight to weight.
double Bound(const Case& shape) {
  if (shape.kv_type == DType::kBfloat16) return testing::Tolerance(DType::kBfloat16);
  return testing::Tolerance(shape.type);
}

void Check(const Case& shape) {
  std::mt19937_64 random(testing::Seed());
  CAPTURE(shape.lengths, shape.groups, shape.head_dim, shape.window, shape.soft_cap, shape.alibi,
          shape.sinks, shape.fixed_split, static_cast<int>(shape.type),
          static_cast<int>(shape.kv_type));
  Problem problem(shape, random);
  problem.Schedule();
  const std::vector<float> out = problem.Launch();
  const std::vector<double> reference = problem.Reference();
  CHECK(testing::RelativeError(out, reference) < Bound(shape));
  // A wrong row among many hides in the norm over all: the worst row counts too.
  const size_t row = reference.size() / shape.lengths.size();
  double worst = 0;
  for (size_t begin = 0; begin < out.size(); begin += row) {
    if (shape.lengths[begin / row] == 0) continue;
    worst = std::max(worst, testing::RelativeError(std::span(out).subspan(begin, row),
                                                   std::span(reference).subspan(begin, row)));
  }
  CHECK(worst < 2 * Bound(shape));
  // The same schedule serves every layer.
  const bool repeats = problem.Launch() == out;
  CHECK(repeats);
  const bool same_without_ids = problem.LaunchWithoutIds() == out;
  CHECK(same_without_ids);
  const bool same_overlapping = problem.LaunchOverlapping() == out;
  CHECK(same_overlapping);
}

// Many short contexts and a very long one.
std::vector<uint32_t> MixedLengths(uint32_t sequences, uint32_t longest) {
  std::vector<uint32_t> lengths;
  for (uint32_t s = 0; s < sequences; ++s) lengths.push_back(1 + s * 37 % 300);
  lengths[sequences / 2] = longest;
  return lengths;
}

TEST_CASE("Decode attention: contexts", "[cuda][decode_attention]") {
  const uint32_t length = GENERATE(1, 63, 64, 65, 127, 1000, 4097);
  const uint32_t head_dim = GENERATE(64, 128);
  const uint32_t fixed_split = GENERATE(0, 256);
  Check({.lengths = {length}, .groups = {4, 4}, .head_dim = head_dim, .fixed_split = fixed_split});
}

TEST_CASE("Decode attention: batches", "[cuda][decode_attention]") {
  const uint32_t fixed_split = GENERATE(0, 128);
  Check({.lengths = {127, 1, 4097}, .groups = {4, 4, 4, 4}, .fixed_split = fixed_split});
  Check({.lengths = MixedLengths(64, 9000), .groups = {4, 4}, .fixed_split = fixed_split});
  Check({.lengths = MixedLengths(256, 5000), .groups = {3, 3}, .fixed_split = fixed_split});
  Check({.lengths = {20'000, 3}, .groups = {48}, .fixed_split = 8 * fixed_split});
  Check({.lengths = {0, 70, 0, 0, 300, 0}, .groups = {4, 4}, .fixed_split = fixed_split});
}

// Few rows of large groups are cut into slices of the group; more rows are not.
TEST_CASE("Decode attention: large groups, few rows and many", "[cuda][decode_attention]") {
  const uint32_t fixed_split = GENERATE(0, 128);
  const uint32_t head_dim = GENERATE(64, 128, 256);
  const std::vector<uint32_t> groups =
      GENERATE(std::vector<uint32_t>{17}, std::vector<uint32_t>{48}, std::vector<uint32_t>{71, 2});
  const uint32_t sequences = GENERATE(1, 4, 5, 8, 9, 12);
  const uint32_t length = GENERATE(130, 3000);
  std::vector<uint32_t> lengths;
  for (uint32_t s = 0; s < sequences; ++s) lengths.push_back(length + s * 117 % 200);
  lengths[sequences / 2] = sequences > 1 ? 0 : length;
  Check({.lengths = lengths, .groups = groups, .head_dim = head_dim, .fixed_split = fixed_split});
}

// Contexts of equal length: rows of which a CTA takes several as a whole, and that are cut.
TEST_CASE("Decode attention: equal contexts", "[cuda][decode_attention]") {
  const auto [sequences, length] =
      GENERATE(std::pair(64u, 512u), std::pair(60u, 500u), std::pair(34u, 1025u),
               std::pair(2u, 128u), std::pair(3u, 300u), std::pair(200u, 64u));
  Check({.lengths = std::vector<uint32_t>(sequences, length), .groups = {4, 4, 4, 4}});
  Check({.lengths = std::vector<uint32_t>(sequences, length), .groups = {1, 8}, .window = 200});
}

TEST_CASE("Decode attention: more sequences than the schedule has threads",
          "[cuda][decode_attention]") {
  const uint32_t fixed_split = GENERATE(0, 128);
  std::vector<uint32_t> lengths = MixedLengths(1100, 3000);
  lengths[3] = lengths[1099] = 0;
  Check({.lengths = lengths, .groups = {2}, .head_dim = 64, .fixed_split = fixed_split});
}

TEST_CASE("Decode attention: more KV heads than a CTA keeps", "[cuda][decode_attention]") {
  const uint32_t kv_heads = GENERATE(32, 33, 130);
  Check({.lengths = {130, 1, 70}, .groups = std::vector<uint32_t>(kv_heads, 2), .head_dim = 64});
}

TEST_CASE("Decode attention: groups and head sizes", "[cuda][decode_attention]") {
  const uint32_t head_dim = GENERATE(64, 80, 96, 128, 256);
  const uint32_t group = GENERATE(1, 3, 4, 7, 8, 16, 17, 32, 48, 71);
  const std::vector<uint32_t> groups(group < 16 ? 3 : 1, group);
  Check({.lengths = {700, 65, 1}, .groups = groups, .head_dim = head_dim});
}

TEST_CASE("Decode attention: groups of unequal size", "[cuda][decode_attention]") {
  using Groups = std::vector<uint32_t>;
  const uint32_t head_dim = GENERATE(64, 128);
  const auto groups = GENERATE(Groups({5, 1, 3}), Groups({2, 20, 7}), Groups({49, 3}));
  Check({.lengths = {700, 65, 1}, .groups = groups, .head_dim = head_dim});
}

TEST_CASE("Decode attention: windows, soft cap and ALiBi", "[cuda][decode_attention]") {
  Case shape = {.lengths = {1, 99, 101, 127, 1000, 4500}, .groups = {4, 2}, .head_dim = 64};
  shape.window = GENERATE(0, 1, 100, 4096);
  shape.soft_cap = GENERATE(0.0f, 3.0f);
  shape.alibi = GENERATE(false, true);
  shape.fixed_split = GENERATE(0, 192);
  Check(shape);
}

TEST_CASE("Decode attention: sinks", "[cuda][decode_attention]") {
  Case shape = {.lengths = {1, 99, 101, 127, 1000, 4500, 0}, .groups = {4, 16, 1}};
  shape.sinks = true;
  shape.head_dim = GENERATE(64, 80, 96, 128, 256);
  shape.window = GENERATE(0, 100);
  shape.fixed_split = GENERATE(0, 192);
  Check(shape);
  std::tie(shape.type, shape.kv_type) = GENERATE(std::pair(DType::kFloat32, DType::kFloat32),
                                                 std::pair(DType::kFloat32, DType::kBfloat16),
                                                 std::pair(DType::kBfloat16, DType::kFloat32));
  Check(shape);
}

TEST_CASE("Decode attention refuses sinks of large groups", "[cuda][decode_attention]") {
  std::mt19937_64 random(testing::Seed());
  Problem problem({.lengths = {70}, .groups = {kDecodeSinkGroupMax + 1}, .sinks = true}, random);
  problem.Schedule();
  CHECK(DecodeAttention(problem.params(), nullptr) == cudaErrorInvalidValue);
}

TEST_CASE("Decode attention: other types", "[cuda][decode_attention]") {
  Case shape = {.lengths = {1, 64, 65, 700, 0}, .groups = {3, 1, 5}};
  std::tie(shape.type, shape.kv_type) = GENERATE(std::pair(DType::kFloat32, DType::kFloat32),
                                                 std::pair(DType::kFloat32, DType::kBfloat16),
                                                 std::pair(DType::kBfloat16, DType::kFloat32));
  shape.head_dim = GENERATE(64, 80, 96, 128, 256);
  shape.window = GENERATE(0, 100);
  if (shape.window != 0) shape.soft_cap = 5.0f;
  shape.alibi = shape.window != 0;
  Check(shape);
}

TEST_CASE("Decode attention with fixed splits: neighbours do not matter",
          "[cuda][decode_attention]") {
  std::mt19937_64 random(testing::Seed());
  const Case shape = {.lengths = {1000, 63, 4097, 512, 3000}, .groups = {4, 4}, .fixed_split = 512};
  Problem problem(shape, random);
  problem.Schedule();
  const std::vector<float> together = problem.Launch();
  const size_t row = together.size() / shape.lengths.size();
  for (uint32_t s = 0; s < shape.lengths.size(); ++s) {
    const std::vector<float> alone = problem.LaunchAlone(s);
    const bool same = std::equal(alone.begin(), alone.end(), together.begin() + s * row);
    CHECK(same);
  }
}

TEST_CASE("Decode attention refuses other head sizes", "[cuda][decode_attention]") {
  uint32_t grid = 0;
  CHECK(DecodeGrid(72, 4, &grid) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace weft::kernels::cuda::decode_testing

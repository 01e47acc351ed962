#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "shard/weights/tensor_reader.h"
#include "tests/shard/weights/collecting_sink.h"

namespace weft::shard {
namespace {

TEST_CASE("All half-precision numbers convert exactly", "[shard][weights]") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float got = HalfToFloat(static_cast<uint16_t>(bits));
    const bool special = (bits >> 10 & 31) == 31;
    if (special && (bits & 1023) != 0) {
      REQUIRE(std::isnan(got));
    } else if (special) {
      REQUIRE(got == (bits < 32768 ? INFINITY : -INFINITY));
    } else {
      const uint16_t half = static_cast<uint16_t>(bits);
      char bytes[2];
      std::memcpy(bytes, &half, 2);
      const float want = test::Half(bytes);
      REQUIRE(got == want);
      REQUIRE(std::signbit(got) == std::signbit(want));
    }
  }
}

// Rows tagged by their index in the file, one head of 8 rows of which 6 are rotary pairs.
TEST_CASE("Rotary pairs are put apart and the rest of a head stays", "[shard][weights]") {
  std::vector<float> rows(16);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  DecoderSpec spec;
  spec.head_dim = 8;
  spec.rope.dims = 6;
  const TensorView tensor{
      "q", TensorType::kF32, {16, 1}, {reinterpret_cast<const uint8_t*>(rows.data()), 64}, nullptr};
  const ParamTensor param{
      {ParamKind::kQuery}, "q", {16, 1}, Split::kHeadRows, RowOrder::kInterleavedRotary};
  const TensorReader second_head(param, spec, tensor, {8, 16, 0, 1});
  std::vector<float> got(8);
  for (int64_t i = 0; i < 8; ++i) std::memcpy(&got[i], second_head.Row(i), 4);
  // File rows 0, 2, 4 are the first halves of the pairs, 1, 3, 5 the second ones.
  CHECK(got == std::vector<float>{8, 10, 12, 9, 11, 13, 14, 15});
  CHECK(second_head.span().data() == tensor.data.data() + 32);
  CHECK(second_head.span().size() == 32);
}

}  // namespace
}  // namespace weft::shard

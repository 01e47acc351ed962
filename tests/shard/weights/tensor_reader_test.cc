#include <catch2/catch.hpp>
#include <cstring>

#include "shard/weights/tensor_reader.h"

namespace weft::shard {
namespace {

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

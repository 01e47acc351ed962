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

TEST_CASE("A Q4_K matrix is cut at any row, and at columns of whole blocks only",
          "[shard][weights]") {
  const std::vector<uint8_t> bytes(4 * 3 * 144);
  TensorView tensor{"o", TensorType::kQ4K, {4, 768}, bytes, nullptr};
  const ParamTensor param{
      {ParamKind::kOutput}, "o", {4, 768}, Split::kHeadColumns, RowOrder::kPlain};
  DecoderSpec spec;
  const TensorReader part(param, spec, tensor, {1, 3, 256, 768});
  CHECK(part.row_bytes() == 2 * 144);
  CHECK(part.Row(1) == bytes.data() + 2 * 3 * 144 + 144);
  CHECK(SliceAligned(tensor, {1, 3, 256, 768}).ok());
}

TEST_CASE("A stack of matrices gives each of them", "[shard][weights]") {
  const std::vector<uint8_t> bytes(3 * 2 * 210);
  const TensorView stack{"experts", TensorType::kQ6K, {3, 2, 256}, bytes, nullptr};
  const TensorView last = MatrixOfStack(stack, 2);
  CHECK(last.name == "experts[2]");
  CHECK(last.type == TensorType::kQ6K);
  CHECK(last.shape == std::vector<uint64_t>{2, 256});
  CHECK(last.data.data() == bytes.data() + 2 * 2 * 210);
  CHECK(last.data.size() == 2 * 210);
}

}  // namespace
}  // namespace weft::shard

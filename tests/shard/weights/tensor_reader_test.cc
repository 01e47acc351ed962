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
  spec.heads = 2;
  spec.head_dim = 8;
  spec.attention_kinds[0].rope.dims = 6;
  const TensorView tensor{
      "q", TensorType::kF32, {16, 1}, {reinterpret_cast<const uint8_t*>(rows.data()), 64}, nullptr};
  const ParamTensor param{
      {{ParamKind::kQuery}, {16, 1}, Split::kHeadRows}, "q", RowOrder::kInterleavedRotary, {}};
  const TensorReader second_head(param, spec, tensor, {8, 16, 0, 1});
  std::vector<float> got(8);
  for (int64_t i = 0; i < 8; ++i) std::memcpy(&got[i], second_head.Row(i), 4);
  // File rows 0, 2, 4 are the first halves of the pairs, 1, 3, 5 the second ones.
  CHECK(got == std::vector<float>{8, 10, 12, 9, 11, 13, 14, 15});
  CHECK(second_head.span().data() == tensor.data.data() + 32);
  CHECK(second_head.span().size() == 32);
  // Of latent attention the last six are pairs, of a query head and of what goes into the cache.
  spec.latent = {.rank = 10, .plain_dim = 2};
  spec.kv_heads = 1;
  const TensorReader query(param, spec, tensor, {8, 16, 0, 1});
  for (int64_t i = 0; i < 8; ++i) std::memcpy(&got[i], query.Row(i), 4);
  CHECK(got == std::vector<float>{8, 9, 10, 12, 14, 11, 13, 15});
  const ParamTensor row{
      {{ParamKind::kLatent}, {16, 1}, Split::kWhole}, "kv", RowOrder::kInterleavedRotary, {}};
  const TensorReader latent(row, spec, tensor, {0, 16, 0, 1});
  for (int64_t i = 0; i < 8; ++i) std::memcpy(&got[i], latent.Row(8 + i), 4);
  CHECK(got == std::vector<float>{8, 9, 10, 12, 14, 11, 13, 15});
}

TEST_CASE("A Q4_K matrix is cut at any row, and at columns of whole blocks only",
          "[shard][weights]") {
  const std::vector<uint8_t> bytes(4 * 3 * 144);
  TensorView tensor{"o", TensorType::kQ4K, {4, 768}, bytes, nullptr};
  const ParamTensor param{
      {{ParamKind::kOutput}, {4, 768}, Split::kHeadColumns}, "o", RowOrder::kPlain, {}};
  DecoderSpec spec;
  const TensorReader part(param, spec, tensor, {1, 3, 256, 768});
  CHECK(part.row_bytes() == 2 * 144);
  CHECK(part.Row(1) == bytes.data() + 2 * 3 * 144 + 144);
  CHECK(SliceAligned(tensor, {1, 3, 256, 768}).ok());
}

// Two KV heads of two queries each, head size 2: a tensor of the rows q q q q k k v v, twice.
TEST_CASE("Rows are found between those of other parameters", "[shard][weights]") {
  std::vector<float> rows(16);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  DecoderSpec spec;
  spec.head_dim = 2;
  const TensorView tensor{"qkv",
                          TensorType::kF32,
                          {16, 1},
                          {reinterpret_cast<const uint8_t*>(rows.data()), 64},
                          nullptr};
  const auto read = [&](const FileLayout& layout, const TensorSlice& slice) {
    const ParamTensor param{
        {{ParamKind::kKey}, {4, 1}, Split::kKvHeadRows}, "qkv", RowOrder::kPlain, layout};
    const TensorReader reader(param, spec, tensor, slice);
    std::vector<float> got(slice.rows());
    for (size_t i = 0; i < got.size(); ++i) {
      const uint8_t* const at = reader.Row(static_cast<int64_t>(i));
      CHECK(at >= reader.span().begin());
      CHECK(at + 4 <= reader.span().end());
      std::memcpy(&got[i], at, 4);
    }
    return got;
  };
  const FileLayout key{{16, 1}, 4, 2, 8, false};
  CHECK(read(key, {0, 4, 0, 1}) == std::vector<float>{4, 5, 12, 13});
  CHECK(read(key, {2, 4, 0, 1}) == std::vector<float>{12, 13});
  const FileLayout query{{16, 1}, 0, 4, 8, false};
  CHECK(read(query, {2, 6, 0, 1}) == std::vector<float>{2, 3, 8, 9});
  const FileLayout behind{{16, 1}, 12, 0, 0, false};
  CHECK(read(behind, {1, 3, 0, 1}) == std::vector<float>{13, 14});
}

// A tensor of {inputs, outputs} = {3, 4} whose numbers are 10 * input + output.
TEST_CASE("A transposed matrix is turned around", "[shard][weights]") {
  std::vector<float> numbers;
  for (int input = 0; input < 3; ++input) {
    for (int output = 0; output < 4; ++output) {
      numbers.push_back(static_cast<float>(10 * input + output));
    }
  }
  const TensorView tensor{"t",
                          TensorType::kF32,
                          {3, 4},
                          {reinterpret_cast<const uint8_t*>(numbers.data()), 48},
                          nullptr};
  // The second half of the tensor's outputs.
  const ParamTensor param{
      {{ParamKind::kKey}, {2, 3}, Split::kWhole}, "t", RowOrder::kPlain, {{3, 4}, 2, 0, 0, true}};
  const DecoderSpec spec;
  const TensorReader reader(param, spec, tensor, {0, 2, 1, 3});
  const TransposedRows rows(reader);
  std::vector<float> got(4);
  std::memcpy(got.data(), rows.Row(0), 8);
  std::memcpy(got.data() + 2, rows.Row(1), 8);
  CHECK(got == std::vector<float>{12, 22, 13, 23});
  CHECK(reader.span().data() == tensor.data.data() + 16);
  CHECK(reader.span().size() == 32);
}

// Two heads of {inputs, outputs} = {2, 3} with one row of something else behind each. Numbers are
// 100 * head + 10 * input + output.
TEST_CASE("Transposed blocks are turned around, each by itself", "[shard][weights]") {
  const std::vector<float> numbers = {0,   1,   2,   10,  11,  12,  -1, -1, -1,
                                      100, 101, 102, 110, 111, 112, -1, -1, -1};
  const TensorView tensor{"t",
                          TensorType::kF32,
                          {6, 3},
                          {reinterpret_cast<const uint8_t*>(numbers.data()), 72},
                          nullptr};
  const ParamTensor param{{{ParamKind::kKeyUp}, {6, 2}, Split::kHeadRows},
                          "t",
                          RowOrder::kPlain,
                          {.shape = {6, 3}, .run_stride = 3, .transposed = true, .block_rows = 3}};
  const DecoderSpec spec;
  const auto read = [&](const TensorSlice& slice) {
    const TransposedRows rows(TensorReader(param, spec, tensor, slice));
    std::vector<float> got;
    for (uint64_t row = 0; row < slice.rows(); ++row) {
      const auto* const values =
          reinterpret_cast<const float*>(rows.Row(static_cast<int64_t>(row)));
      got.insert(got.end(), values, values + 2);
    }
    return got;
  };
  CHECK(read({0, 6, 0, 2}) ==
        std::vector<float>{0, 10, 1, 11, 2, 12, 100, 110, 101, 111, 102, 112});
  CHECK(read({3, 6, 0, 2}) == std::vector<float>{100, 110, 101, 111, 102, 112});
  const TensorReader second(param, spec, tensor, {3, 6, 0, 2});
  CHECK(second.span().data() == tensor.data.data() + 36);
  CHECK(second.span().size() == 24);
}

TEST_CASE("A stack of matrices or vectors gives each of them", "[shard][weights]") {
  const std::vector<uint8_t> bytes(3 * 2 * 210);
  const TensorView stack{"experts", TensorType::kQ6K, {3, 2, 256}, bytes, nullptr};
  const TensorView last = MemberOfStack(stack, 2);
  CHECK(last.name == "experts[2]");
  CHECK(last.type == TensorType::kQ6K);
  CHECK(last.shape == std::vector<uint64_t>{2, 256});
  CHECK(last.data.data() == bytes.data() + 2 * 2 * 210);
  CHECK(last.data.size() == 2 * 210);
  const TensorView biases{"biases", TensorType::kF32, {3, 5}, {bytes.data(), 60}, nullptr};
  const TensorView middle = MemberOfStack(biases, 1);
  CHECK(middle.shape == std::vector<uint64_t>{5});
  CHECK(middle.data.data() == bytes.data() + 20);
  CHECK(middle.data.size() == 20);
}

}  // namespace
}  // namespace weft::shard

#include "kernels/cuda/elementwise/rows.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

TEST_CASE("Gathered rows are the rows that were named", "[cuda][rows]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t columns = GENERATE(4u, 36u, 1028u, 6144u);
  const uint32_t rows = GENERATE(1u, 7u, 256u);
  const uint32_t stride = columns + 4;
  const uint32_t in_rows = 300;
  const auto in = testing::RandomFloats(random, size_t{in_rows} * stride);
  std::vector<uint32_t> source(rows);
  for (uint32_t& row : source) row = static_cast<uint32_t>(random() % in_rows);
  DeviceArray<float> device_in(in);
  DeviceArray<uint32_t> device_source(source);
  DeviceArray<float> out(size_t{rows} * columns);
  const GatherRowsParams params{device_in.data(), stride * 4, device_source.data(),
                                out.data(),       rows,       columns * 4};
  WEFT_CUDA_CHECK(GatherRows(params, nullptr));
  std::vector<float> expected;
  for (const uint32_t row : source) {
    const auto begin = in.begin() + static_cast<ptrdiff_t>(size_t{row} * stride);
    expected.insert(expected.end(), begin, begin + columns);
  }
  CHECK(out.Host() == expected);
}

TEST_CASE("A bias is added to every row", "[cuda][rows]") {
  std::mt19937_64 random(testing::Seed());
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const DType bias_type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const uint32_t columns = GENERATE(1u, 90u, 4099u);
  const uint32_t rows = GENERATE(1u, 5u, 256u);
  const auto values = testing::Rounded(testing::RandomFloats(random, rows * columns), type);
  const auto bias = testing::Rounded(testing::RandomFloats(random, columns), bias_type);
  DeviceTensor device_rows(type, values);
  DeviceTensor device_bias(bias_type, bias);
  const AddBiasParams params{device_rows.data(), device_bias.data(), rows, columns, type,
                             bias_type};
  WEFT_CUDA_CHECK(AddBias(params, nullptr));
  std::vector<float> expected(values.size());
  for (size_t i = 0; i < values.size(); ++i) expected[i] = values[i] + bias[i % columns];
  CHECK(device_rows.Host() == testing::Rounded(expected, type));
}

TEST_CASE("Block tables are unpacked to their stride", "[cuda][rows]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t sequences = GENERATE(1u, 3u, 256u);
  const uint32_t stride = 700;
  std::vector<uint32_t> begin = {0};
  std::vector<uint32_t> ids;
  for (uint32_t s = 0; s < sequences; ++s) {
    const auto count = static_cast<uint32_t>(random() % (s % 2 == 0 ? 3 : stride + 1));
    for (uint32_t i = 0; i < count; ++i) ids.push_back(static_cast<uint32_t>(random()));
    begin.push_back(static_cast<uint32_t>(ids.size()));
  }
  DeviceArray<uint32_t> device_ids(ids);
  DeviceArray<uint32_t> device_begin(begin);
  DeviceArray<uint32_t> out(size_t{sequences} * stride);
  WEFT_CUDA_CHECK(UnpackBlockTables(
      {device_ids.data(), device_begin.data(), sequences, out.data(), stride}, nullptr));
  std::vector<uint32_t> expected(out.size(), UINT32_MAX);
  for (uint32_t s = 0; s < sequences; ++s) {
    std::copy(ids.begin() + begin[s], ids.begin() + begin[s + 1],
              expected.begin() + static_cast<ptrdiff_t>(size_t{s} * stride));
  }
  CHECK(out.Host() == expected);
}

TEST_CASE("Slices are joined to whole rows", "[cuda][rows]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t rows = GENERATE(1u, 5u, 64u);
  const std::vector<uint32_t> begin =
      GENERATE(std::vector<uint32_t>{0, 7}, std::vector<uint32_t>{0, 34, 67, 101},
               std::vector<uint32_t>{0, 16032, 32064});
  const auto parts = static_cast<uint32_t>(begin.size()) - 1;
  const uint32_t stride = (begin[1] + 7) / 8 * 8;
  const auto slices = testing::RandomFloats(random, size_t{parts} * rows * stride);
  const uint32_t out_stride = begin.back() + 3;
  DeviceArray<float> device_slices(slices);
  DeviceArray<uint32_t> device_begin(begin);
  DeviceArray<float> out(size_t{rows} * out_stride);
  JoinSlicesParams params;
  params.slices = device_slices.data();
  params.slice_stride = stride;
  params.column_begin = device_begin.data();
  params.parts = parts;
  params.rows = rows;
  params.out = out.data();
  params.out_stride = out_stride;
  WEFT_CUDA_CHECK(JoinSlices(params, nullptr));
  const std::vector<float> result = out.Host();
  size_t wrong = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t p = 0; p < parts; ++p) {
      for (uint32_t i = begin[p]; i < begin[p + 1]; ++i) {
        const float expected = slices[(size_t{p} * rows + r) * stride + i - begin[p]];
        wrong += result[size_t{r} * out_stride + i] != expected;
      }
    }
    for (uint32_t i = begin.back(); i < out_stride; ++i) {
      wrong += !std::isnan(result[size_t{r} * out_stride + i]);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("A delta is added to the residual in float32", "[cuda][rows]") {
  std::mt19937_64 random(testing::Seed());
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const size_t count = GENERATE(1u, 255u, 4096u, 70001u);
  const auto residual = testing::RandomFloats(random, count + 1, 3.0f);
  const auto delta = testing::Rounded(testing::RandomFloats(random, count + 1), type);
  testing::DeviceArray<float> device_residual(residual);
  testing::DeviceTensor device_delta(type, delta);
  WEFT_CUDA_CHECK(
      AddToResidual({device_residual.data(), device_delta.data(), count, type}, nullptr));
  const std::vector<float> got = device_residual.Host();
  for (size_t i = 0; i < count; ++i) REQUIRE(got[i] == residual[i] + delta[i]);
  CHECK(got[count] == residual[count]);
}

TEST_CASE("Float32 elements are rounded to the type", "[cuda][rows]") {
  std::mt19937_64 random(testing::Seed());
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const size_t count = GENERATE(1u, 255u, 4096u, 70001u);
  const auto values = testing::RandomFloats(random, count, 3.0f);
  const auto untouched = testing::Rounded(testing::RandomFloats(random, count + 1), type);
  DeviceArray<float> in(values);
  DeviceTensor out(type, untouched);
  WEFT_CUDA_CHECK(RoundElements({in.data(), out.data(), count, type}, nullptr));
  std::vector<float> expected = testing::Rounded(values, type);
  expected.push_back(untouched[count]);
  CHECK(out.Host() == expected);
}

}  // namespace
}  // namespace weft::kernels::cuda

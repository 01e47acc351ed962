#include "kernels/cuda/elementwise/heads.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceTensor;

struct Case {
  uint32_t rows;
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t head_stride;
};

TEST_CASE("Query and key heads are normalised, values and padding stay", "[cuda][heads]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape = GENERATE(Case{1, 1, 1, 1, 8}, Case{3, 9, 3, 20, 64}, Case{5, 8, 2, 64, 64},
                              Case{33, 32, 8, 128, 128}, Case{2, 3, 3, 256, 256});
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  CAPTURE(shape.rows, shape.query_heads, shape.head_dim, static_cast<int>(type));
  const uint32_t heads = shape.query_heads + 2 * shape.kv_heads;
  const size_t row = size_t{heads} * shape.head_stride;
  const auto qkv = testing::Rounded(testing::RandomFloats(random, shape.rows * row), type);
  const auto query_norm = testing::Rounded(testing::RandomFloats(random, shape.head_dim), type);
  const auto key_norm = testing::Rounded(testing::RandomFloats(random, shape.head_dim), type);
  DeviceTensor device_qkv(type, qkv);
  DeviceTensor device_query_norm(type, query_norm);
  DeviceTensor device_key_norm(type, key_norm);
  NormHeadsParams params;
  params.qkv = device_qkv.data();
  params.row_stride = static_cast<uint32_t>(row);
  params.weight_offset = shape.rows % 2 == 0 ? 1.0f : 0.0f;
  params.query_norm = device_query_norm.data();
  params.key_norm = device_key_norm.data();
  params.query_heads = shape.query_heads;
  params.kv_heads = shape.kv_heads;
  params.head_dim = shape.head_dim;
  params.head_stride = shape.head_stride;
  params.rows = shape.rows;
  params.epsilon = 1e-6f;
  params.type = type;
  WEFT_CUDA_CHECK(NormHeads(params, nullptr));
  std::vector<double> want(qkv.begin(), qkv.end());
  for (size_t head = 0; head < size_t{shape.rows} * heads; ++head) {
    const size_t of_row = head % heads;
    if (of_row >= shape.query_heads + shape.kv_heads) continue;
    double* const x = want.data() + head * shape.head_stride;
    double squares = 0;
    for (uint32_t i = 0; i < shape.head_dim; ++i) squares += x[i] * x[i];
    const double scale = 1 / std::sqrt(squares / shape.head_dim + 1e-6);
    const auto& norm = of_row < shape.query_heads ? query_norm : key_norm;
    for (uint32_t i = 0; i < shape.head_dim; ++i) x[i] *= scale * (norm[i] + params.weight_offset);
  }
  CHECK(testing::RelativeError(device_qkv.Host(), want) < testing::Tolerance(type));
}

TEST_CASE("Clip cuts at both ends and lets NaN through", "[cuda][heads]") {
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  std::vector<float> x(1000, 0.5f);
  x[0] = -3.0f;
  x[1] = 9.0f;
  x[2] = NAN;
  x[999] = 4.0f;
  DeviceTensor device(type, x);
  WEFT_CUDA_CHECK(Clip({device.data(), 999, 2.0f, type}, nullptr));
  const std::vector<float> got = device.Host();
  CHECK(got[0] == -2.0f);
  CHECK(got[1] == 2.0f);
  CHECK(std::isnan(got[2]));
  CHECK(got[3] == 0.5f);
  CHECK(got[999] == 4.0f);
}

}  // namespace
}  // namespace weft::kernels::cuda

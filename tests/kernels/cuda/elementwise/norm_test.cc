#include "kernels/cuda/elementwise/norm.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

struct Case {
  uint32_t rows;
  uint32_t hidden;
};

// In double precision, on what the device was given.
struct Reference {
  std::vector<double> residual;
  std::vector<double> out;
};

Reference Compute(const Case& shape, const std::vector<float>& residual,
                  const std::vector<float>* delta, const std::vector<float>& weight,
                  const std::vector<float>* bias, float epsilon, bool layer) {
  Reference reference;
  reference.residual.assign(residual.begin(), residual.end());
  reference.out.resize(residual.size());
  for (size_t r = 0; r < shape.rows; ++r) {
    double* row = reference.residual.data() + r * shape.hidden;
    double sum = 0;
    for (size_t i = 0; i < shape.hidden; ++i) {
      if (delta != nullptr) row[i] += (*delta)[r * shape.hidden + i];
      sum += row[i];
    }
    const double mean = layer ? sum / shape.hidden : 0;
    double squares = 0;
    for (size_t i = 0; i < shape.hidden; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double scale = 1 / std::sqrt(squares / shape.hidden + epsilon);
    for (size_t i = 0; i < shape.hidden; ++i) {
      reference.out[r * shape.hidden + i] =
          (row[i] - mean) * scale * weight[i] + (bias != nullptr ? (*bias)[i] : 0.0f);
    }
  }
  return reference;
}

TEST_CASE("Norms with the residual sum agree with double precision", "[cuda][norm]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape =
      GENERATE(Case{1, 1}, Case{3, 7}, Case{5, 576}, Case{2, 1023}, Case{1, 4096}, Case{256, 4096},
               Case{7, 5120}, Case{33, 8192}, Case{4, 16384}, Case{2, 16386}, Case{3, 20480});
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const bool layer = GENERATE(false, true);
  const bool with_delta = GENERATE(false, true);
  CAPTURE(shape.rows, shape.hidden, static_cast<int>(type), layer, with_delta);
  const size_t size = size_t{shape.rows} * shape.hidden;
  const auto residual = testing::RandomFloats(random, size, 3.0f);
  const auto delta = testing::Rounded(testing::RandomFloats(random, size), type);
  const auto weight = testing::Rounded(testing::RandomFloats(random, shape.hidden), type);
  const auto bias = testing::Rounded(testing::RandomFloats(random, shape.hidden), type);
  DeviceArray<float> device_residual(residual);
  DeviceTensor device_delta(type, delta);
  DeviceTensor device_weight(type, weight);
  DeviceTensor device_bias(type, bias);
  DeviceTensor out(type, size);
  NormParams params;
  params.delta = with_delta ? device_delta.data() : nullptr;
  params.residual = device_residual.data();
  params.weight = device_weight.data();
  params.weight_offset = shape.rows % 2 == 0 ? 1.0f : 0.0f;
  params.bias = layer ? device_bias.data() : nullptr;
  params.out = out.data();
  params.rows = shape.rows;
  params.hidden = shape.hidden;
  params.epsilon = 1e-5f;
  params.type = type;
  WEFT_CUDA_CHECK(layer ? LayerNorm(params, nullptr) : RmsNorm(params, nullptr));
  auto weight_used = weight;
  for (float& w : weight_used) w += params.weight_offset;
  const Reference reference = Compute(shape, residual, with_delta ? &delta : nullptr, weight_used,
                                      layer ? &bias : nullptr, params.epsilon, layer);
  CHECK(testing::RelativeError(out.Host(), reference.out) < testing::Tolerance(type));
  CHECK(testing::RelativeError(device_residual.Host(), reference.residual) < 1e-6);
}

TEST_CASE("Norms in place agree with double precision", "[cuda][norm]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape = GENERATE(Case{1, 1}, Case{3, 7}, Case{5, 576}, Case{33, 4096});
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const bool layer = GENERATE(false, true);
  CAPTURE(shape.rows, shape.hidden, static_cast<int>(type), layer);
  const size_t size = size_t{shape.rows} * shape.hidden;
  const auto residual = testing::RandomFloats(random, size, 3.0f);
  const auto weight = testing::Rounded(testing::RandomFloats(random, shape.hidden), type);
  const auto bias = testing::Rounded(testing::RandomFloats(random, shape.hidden), type);
  DeviceArray<float> device_residual(residual);
  DeviceTensor device_weight(type, weight);
  DeviceTensor device_bias(type, bias);
  NormParams params;
  params.residual = device_residual.data();
  params.weight = device_weight.data();
  params.bias = layer ? device_bias.data() : nullptr;
  params.rows = shape.rows;
  params.hidden = shape.hidden;
  params.epsilon = 1e-5f;
  params.type = type;
  WEFT_CUDA_CHECK(layer ? LayerNormInPlace(params, nullptr) : RmsNormInPlace(params, nullptr));
  const Reference reference =
      Compute(shape, residual, nullptr, weight, layer ? &bias : nullptr, params.epsilon, layer);
  // The residual is float32, whatever the weights are.
  CHECK(testing::RelativeError(device_residual.Host(), reference.out) < 1e-5);
  params.out = device_residual.data();
  CHECK(RmsNormInPlace(params, nullptr) == cudaErrorInvalidValue);
}

TEST_CASE("Norms: time", "[cuda][norm][time]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape = GENERATE(Case{1, 4096}, Case{64, 4096}, Case{8192, 4096}, Case{64, 8192});
  const size_t size = size_t{shape.rows} * shape.hidden;
  DeviceArray<float> residual(testing::RepeatedFloats(random, size));
  DeviceTensor delta(DType::kBfloat16, testing::RepeatedFloats(random, size, 0.01f));
  DeviceTensor weight(DType::kBfloat16, testing::RepeatedFloats(random, shape.hidden));
  DeviceTensor out(DType::kBfloat16, size);
  NormParams params;
  params.delta = delta.data();
  params.residual = residual.data();
  params.weight = weight.data();
  params.out = out.data();
  params.rows = shape.rows;
  params.hidden = shape.hidden;
  params.epsilon = 1e-5f;
  const double us =
      testing::MedianUs([&](cudaStream_t stream) { WEFT_CUDA_CHECK(RmsNorm(params, stream)); });
  testing::Report("residual + RMSNorm",
                  std::to_string(shape.rows) + " x " + std::to_string(shape.hidden), us,
                  12.0 * size + 2.0 * shape.hidden);
}

}  // namespace
}  // namespace weft::kernels::cuda

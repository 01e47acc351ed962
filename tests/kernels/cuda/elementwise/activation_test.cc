#include "kernels/cuda/elementwise/activation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

// Elements behind an output that must stay as they are.
constexpr size_t kGuard = 64;

struct Case {
  uint32_t rows;
  uint32_t columns;
};

double Apply(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kClampedSwiglu:
      break;  // of two numbers
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Normal numbers with some from where exp and x^3 overflow or vanish.
std::vector<float> Inputs(std::mt19937_64& random, size_t count, DType type) {
  std::vector<float> out = testing::RandomFloats(random, count, 3.0f);
  for (float x : {0.0f, -0.0f, 20.0f, -20.0f, 88.0f, -88.0f, -89.0f, 1e4f, -1e4f, 1e20f, -1e20f}) {
    // Each in about one of a hundred places.
    for (size_t i = random() % 100; i < count; i += 1 + random() % 200) out[i] = x;
  }
  return testing::Rounded(std::move(out), type);
}

// Elements of `out` off by more than the rounding and `absolute` times the element's scale. Every
// element is looked at by itself: those at +-1e20 would hide the others in one norm.
size_t CountWrong(const std::vector<float>& out, const std::vector<double>& reference,
                  const std::vector<double>& scales, DType type) {
  const double relative = type == DType::kFloat32 ? 2e-6 : 1.0 / 256;
  const double absolute = 2e-6;
  size_t wrong = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double bound = relative * std::abs(reference[i]) + absolute * scales[i];
    wrong += !(std::abs(out[i] - reference[i]) <= bound);
  }
  return wrong;
}

size_t CountTouched(const std::vector<float>& out, size_t begin) {
  return std::count_if(out.begin() + begin, out.end(), [](float x) { return !std::isnan(x); });
}

constexpr Case kCases[] = {{1, 1},      {3, 7},     {2, 1023},  {1, 14336}, {256, 1536},
                           {256, 1001}, {33, 2052}, {17, 4},    {5, 8},     {9, 11008},
                           {4, 257},    {8, 13696}, {2, 40960}, {7, 12}};

ActivationKind AnyKind() {
  return GENERATE(ActivationKind::kSilu, ActivationKind::kGeluTanh, ActivationKind::kGeluErf,
                  ActivationKind::kRelu);
}

TEST_CASE("The clamped SwiGLU agrees with double precision", "[cuda][activation]") {
  std::mt19937_64 random(testing::Seed());
  constexpr double kLimit = 7;
  for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
    for (const uint32_t columns : {7u, 96u, 2880u}) {
      const std::vector<float> in = Inputs(random, size_t{3} * 2 * columns, type);
      DeviceTensor device_in(type, in);
      DeviceTensor device_out(type, size_t{3} * columns + kGuard);
      GatedActivationParams params;
      params.in = device_in.data();
      params.out = device_out.data();
      params.rows = 3;
      params.columns = columns;
      params.kind = ActivationKind::kClampedSwiglu;
      params.limit = kLimit;
      params.type = type;
      WEFT_CUDA_CHECK(GatedActivation(params, nullptr));
      std::vector<double> reference, scales;
      for (size_t r = 0; r < 3; ++r) {
        for (size_t i = 0; i < columns; ++i) {
          const double gate = std::min<double>(in[2 * r * columns + i], kLimit);
          const double up = std::clamp<double>(in[(2 * r + 1) * columns + i], -kLimit, kLimit);
          reference.push_back(gate / (1 + std::exp(-1.702 * gate)) * (up + 1));
          scales.push_back(1 + std::abs(up));
        }
      }
      const std::vector<float> out = device_out.Host();
      CHECK(CountWrong(out, reference, scales, type) == 0);
      CHECK(CountTouched(out, size_t{3} * columns) == 0);
    }
  }
}

TEST_CASE("Gated activations agree with double precision", "[cuda][activation]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const size_t columns = shape.columns;
  const size_t size = shape.rows * columns;
  std::vector<float> in = Inputs(random, 2 * size, type);
  // Only the gates take extreme values.
  for (size_t r = 0; r < shape.rows; ++r) {
    const auto up = testing::Rounded(testing::RandomFloats(random, columns, 2.0f), type);
    std::copy(up.begin(), up.end(), in.begin() + (2 * r + 1) * columns);
  }
  DeviceTensor device_in(type, in);
  const ActivationKind kind = AnyKind();
  CAPTURE(shape.rows, shape.columns, static_cast<int>(type), static_cast<int>(kind));
  DeviceTensor device_out(type, size + kGuard);
  GatedActivationParams params;
  params.in = device_in.data();
  params.out = device_out.data();
  params.rows = shape.rows;
  params.columns = shape.columns;
  params.kind = kind;
  params.type = type;
  WEFT_CUDA_CHECK(GatedActivation(params, nullptr));
  std::vector<double> reference, scales;
  for (size_t r = 0; r < shape.rows; ++r) {
    for (size_t i = 0; i < columns; ++i) {
      const double up = in[(2 * r + 1) * columns + i];
      reference.push_back(Apply(kind, in[2 * r * columns + i]) * up);
      scales.push_back(1 + std::abs(up));
    }
  }
  const std::vector<float> out = device_out.Host();
  CHECK(CountWrong(out, reference, scales, type) == 0);
  CHECK(CountTouched(out, size) == 0);
}

TEST_CASE("Plain activations agree with double precision", "[cuda][activation]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const size_t size = size_t{shape.rows} * shape.columns;
  const auto in = Inputs(random, size, type);
  const auto bias = testing::Rounded(testing::RandomFloats(random, shape.columns), type);
  DeviceTensor device_bias(type, bias);
  const ActivationKind kind = AnyKind();
  const bool with_bias = GENERATE(false, true);
  const bool in_place = GENERATE(false, true);
  CAPTURE(shape.rows, shape.columns, static_cast<int>(type), static_cast<int>(kind), with_bias,
          in_place);
  std::vector<float> guarded = in;
  guarded.resize(size + kGuard, std::numeric_limits<float>::quiet_NaN());
  DeviceTensor device_in(type, guarded);
  DeviceTensor device_out(type, size + kGuard);
  ActivationParams params;
  params.in = device_in.data();
  params.bias = with_bias ? device_bias.data() : nullptr;
  params.out = in_place ? device_in.data() : device_out.data();
  params.rows = shape.rows;
  params.columns = shape.columns;
  params.kind = kind;
  params.type = type;
  WEFT_CUDA_CHECK(Activation(params, nullptr));
  std::vector<double> reference;
  for (size_t i = 0; i < size; ++i) {
    // The sum is one of float32.
    const float x = with_bias ? in[i] + bias[i % shape.columns] : in[i];
    reference.push_back(Apply(kind, x));
  }
  const std::vector<float> out = in_place ? device_in.Host() : device_out.Host();
  CHECK(CountWrong(out, reference, std::vector<double>(size, 1.0), type) == 0);
  CHECK(CountTouched(out, size) == 0);
}

TEST_CASE("Activations keep NaN", "[cuda][activation]") {
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const uint32_t columns = GENERATE(5u, 8u);
  const ActivationKind kind = AnyKind();
  CAPTURE(static_cast<int>(type), columns, static_cast<int>(kind));
  std::vector<float> in(2 * columns, 1.0f);
  in[2] = std::numeric_limits<float>::quiet_NaN();
  DeviceTensor device_in(type, in);
  DeviceTensor gated(type, columns);
  DeviceTensor plain(type, columns);
  GatedActivationParams gated_params;
  gated_params.in = device_in.data();
  gated_params.out = gated.data();
  ActivationParams params;
  params.in = device_in.data();
  params.out = plain.data();
  gated_params.rows = params.rows = 1;
  gated_params.columns = params.columns = columns;
  gated_params.kind = params.kind = kind;
  gated_params.type = params.type = type;
  WEFT_CUDA_CHECK(GatedActivation(gated_params, nullptr));
  WEFT_CUDA_CHECK(Activation(params, nullptr));
  for (const auto& out : {gated.Host(), plain.Host()}) {
    CHECK(std::isnan(out[2]));
    CHECK(CountTouched(out, 0) == columns - 1);
  }
}

TEST_CASE("Activations: time", "[cuda][activation][time]") {
  constexpr uint32_t kColumns = 14336;
  std::mt19937_64 random(testing::Seed());
  const uint32_t rows = GENERATE(1u, 64u, 2048u);
  const size_t size = size_t{rows} * kColumns;
  DeviceTensor in(DType::kBfloat16, testing::RepeatedFloats(random, 2 * size));
  DeviceTensor out(DType::kBfloat16, size);
  const std::string shape = std::to_string(rows) + " x " + std::to_string(kColumns);
  GatedActivationParams gated;
  gated.in = in.data();
  gated.out = out.data();
  gated.rows = rows;
  gated.columns = kColumns;
  const double gated_us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(GatedActivation(gated, stream)); });
  testing::Report("gated SiLU", shape, gated_us, 6.0 * size);
  ActivationParams plain;
  plain.in = in.data();
  plain.bias = in.data();
  plain.out = out.data();
  plain.rows = rows;
  plain.columns = kColumns;
  for (const auto& [name, kind] : {std::pair{"bias + GELU tanh", ActivationKind::kGeluTanh},
                                   std::pair{"bias + GELU erf", ActivationKind::kGeluErf}}) {
    plain.kind = kind;
    const double us =
        testing::MedianUs([&](cudaStream_t stream) { WEFT_CUDA_CHECK(Activation(plain, stream)); });
    testing::Report(name, shape, us, 4.0 * size + 2.0 * kColumns);
  }
}

}  // namespace
}  // namespace weft::kernels::cuda

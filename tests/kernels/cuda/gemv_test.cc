#include "kernels/cuda/gemv.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "kernels/cuda/norm.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;
using testing::Graph;

constexpr float kEpsilon = 1e-5f;
constexpr uint32_t kRows = kGemvRowsMax;

float Round(double x) { return __bfloat162float(__float2bfloat16_rn(static_cast<float>(x))); }

// Repeats itself, but not from row to row of any weight.
std::vector<float> Drawn(std::mt19937_64& random, size_t count, float scale) {
  const auto tile = testing::RandomFloats(random, std::min<size_t>(count, 500009), scale);
  std::vector<float> out(count);
  for (size_t i = 0, at = 0; i < count; ++i) {
    out[i] = tile[at];
    if (++at == tile.size()) at = 0;
  }
  return testing::Rounded(std::move(out), DType::kBfloat16);
}

// All inputs of a shape, for four rows.
struct Inputs {
  uint32_t n;
  uint32_t k;
  std::vector<float> weight;
  std::vector<float> in;
  std::vector<float> residual;
  std::vector<float> norm_weight;
  std::vector<float> before;
  DeviceTensor device_weight;
  DeviceTensor device_in;
  DeviceArray<float> device_residual;
  DeviceTensor device_norm_weight;

  Inputs(std::mt19937_64& random, uint32_t n_, uint32_t k_)
      : n(n_),
        k(k_),
        weight(Drawn(random, size_t{n} * k, 1 / std::sqrt(static_cast<float>(k)))),
        in(Drawn(random, size_t{kRows} * k, 1.0f)),
        residual(testing::RandomFloats(random, size_t{kRows} * k, 3.0f)),
        norm_weight(Drawn(random, k, 1.0f)),
        before(testing::RandomFloats(random, size_t{kRows} * n)),
        device_weight(DType::kBfloat16, weight),
        device_in(DType::kBfloat16, in),
        device_residual(residual),
        device_norm_weight(DType::kBfloat16, norm_weight) {}

  GemvParams Params(bool norm) {
    GemvParams params;
    params.weight = device_weight.data();
    params.in = norm ? nullptr : device_in.data();
    params.residual_in = norm ? device_residual.data() : nullptr;
    params.norm_weight = norm ? device_norm_weight.data() : nullptr;
    params.epsilon = kEpsilon;
    params.n = n;
    params.k = k;
    return params;
  }

  // What the products are of.
  std::vector<float> X(bool norm) const {
    if (!norm) return in;
    std::vector<float> out(residual.size());
    for (size_t r = 0; r < kRows; ++r) {
      double squares = 0;
      for (size_t i = 0; i < k; ++i) squares += std::pow(residual[r * k + i], 2);
      const double scale = 1 / std::sqrt(squares / k + kEpsilon);
      for (size_t i = 0; i < k; ++i) {
        out[r * k + i] = Round(residual[r * k + i] * scale * norm_weight[i]);
      }
    }
    return out;
  }
};

// Columns that are compared: all, or of many every few and the last.
bool IsCompared(const Inputs& inputs, size_t column) {
  const size_t stride = size_t{inputs.n} * inputs.k < 10'000'000 ? 1 : 7;
  return column % stride == 0 || column + 9 > inputs.n;
}

// y, [kRows, n]; 0 where it is not compared.
std::vector<double> Products(const Inputs& inputs, bool norm) {
  const std::vector<float> x = inputs.X(norm);
  const uint32_t half = inputs.n / 2;
  std::vector<double> out(size_t{kRows} * inputs.n);
  for (size_t j = 0; j < inputs.n; ++j) {
    const bool of_gate = half != 0 && IsCompared(inputs, j % half);
    if (!IsCompared(inputs, j) && !of_gate) continue;
    const float* weight = inputs.weight.data() + j * inputs.k;
    double sums[kRows] = {};
    for (size_t i = 0; i < inputs.k; ++i) {
      for (size_t r = 0; r < kRows; ++r) sums[r] += double{weight[i]} * x[r * inputs.k + i];
    }
    for (size_t r = 0; r < kRows; ++r) out[r * inputs.n + j] = sums[r];
  }
  return out;
}

struct Kind {
  GemvEpilogue epilogue;
  DType type;
};
constexpr Kind kKinds[] = {{GemvEpilogue::kStore, DType::kBfloat16},
                           {GemvEpilogue::kStore, DType::kFloat32},
                           {GemvEpilogue::kAccumulate, DType::kFloat32},
                           {GemvEpilogue::kGatedSilu, DType::kBfloat16}};

double Expected(const Inputs& inputs, const Kind& kind, const std::vector<double>& products,
                size_t row, size_t column) {
  const double* y = products.data() + row * inputs.n;
  if (kind.epilogue == GemvEpilogue::kGatedSilu) {
    const double gate = Round(y[column]);
    return gate / (1 + std::exp(-gate)) * Round(y[inputs.n / 2 + column]);
  }
  const bool adds = kind.epilogue == GemvEpilogue::kAccumulate;
  return y[column] + (adds ? inputs.before[row * inputs.n + column] : 0.0f);
}

// `out` with gaps between its rows and room behind them, as the kernel left it.
struct Result {
  std::vector<float> values;  // [rows, columns]
  bool outside = false;       // something else was written
};

uint32_t StrideOf(const Inputs& inputs) { return inputs.n + 5; }

template <typename T>
Result Run(Inputs& inputs, const Kind& kind, GemvParams params, uint32_t rows) {
  const bool gated = kind.epilogue == GemvEpilogue::kGatedSilu;
  const uint32_t columns = gated ? inputs.n / 2 : inputs.n;
  const uint32_t stride = StrideOf(inputs);
  DeviceArray<T> out(size_t{kRows} * stride);
  if (kind.epilogue == GemvEpilogue::kAccumulate) {
    for (size_t r = 0; r < rows; ++r) {
      WEFT_CUDA_CHECK(cudaMemcpy(out.data() + r * stride, inputs.before.data() + r * inputs.n,
                                 columns * sizeof(T), cudaMemcpyHostToDevice));
    }
  }
  params.out = out.data();
  params.out_stride = stride;
  params.out_type = kind.type;
  params.epilogue = kind.epilogue;
  params.rows = rows;
  WEFT_CUDA_CHECK(Gemv(params, nullptr));
  const std::vector<T> host = out.Host();
  Result result;
  for (size_t i = 0; i < host.size(); ++i) {
    if (i / stride < rows && i % stride < columns) {
      result.values.push_back(static_cast<float>(host[i]));
    } else {
      constexpr uint32_t kPoison = 0xffffffffu;
      result.outside |= std::memcmp(&kPoison, &host[i], sizeof(T)) != 0;
    }
  }
  return result;
}

Result Run(Inputs& inputs, const Kind& kind, const GemvParams& params, uint32_t rows) {
  if (kind.type == DType::kFloat32) return Run<float>(inputs, kind, params, rows);
  return Run<__nv_bfloat16>(inputs, kind, params, rows);
}

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

// One prologue and epilogue, for one to four rows.
void Check(Inputs& inputs, const Kind& kind, bool norm, const std::vector<double>& products) {
  const bool gated = kind.epilogue == GemvEpilogue::kGatedSilu;
  const uint32_t columns = gated ? inputs.n / 2 : inputs.n;
  const Result all = Run(inputs, kind, inputs.Params(norm), kRows);
  CHECK(!all.outside);
  for (const float value : all.values) REQUIRE(std::isfinite(value));
  std::vector<float> compared;
  std::vector<double> expected;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t j = 0; j < columns; ++j) {
      if (!IsCompared(inputs, j)) continue;
      compared.push_back(all.values[r * columns + j]);
      expected.push_back(Expected(inputs, kind, products, r, j));
    }
  }
  // The norm's own rounding to bf16 may fall differently from double precision's now and then.
  const double tolerance =
      norm ? std::max(testing::Tolerance(kind.type), 4e-3) : testing::Tolerance(kind.type);
  CHECK(testing::RelativeError(compared, expected) < tolerance);
  for (uint32_t rows = 1; rows < kRows; ++rows) {
    CAPTURE(rows);
    GemvParams params = inputs.Params(norm);
    params.dependent = rows == 2;
    const Result some = Run(inputs, kind, params, rows);
    CHECK(!some.outside);
    REQUIRE(some.values.size() == size_t{rows} * columns);
    CHECK(SameBits(some.values.data(), all.values.data(), some.values.size()));
  }
}

TEST_CASE("Gemv agrees with double precision", "[cuda][gemv]") {
  std::mt19937_64 random(testing::Seed());
  struct Case {
    uint32_t n;
    uint32_t k;
  };
  // The last: several panels of the input and more units than a warp takes through them at a time.
  const auto shape =
      GENERATE(Case{1, 8}, Case{2, 8}, Case{7, 64}, Case{4099, 64}, Case{33, 576}, Case{4099, 1536},
               Case{1, 4096}, Case{1056, 4096}, Case{33, 14336}, Case{266, 4104}, Case{134, 20000},
               Case{700, 14336}, Case{8200, 4360});
  CAPTURE(shape.n, shape.k);
  Inputs inputs(random, shape.n, shape.k);
  for (const bool norm : {false, true}) {
    const std::vector<double> products = Products(inputs, norm);
    for (const Kind& kind : kKinds) {
      const bool gated = kind.epilogue == GemvEpilogue::kGatedSilu;
      if (gated && shape.n % 2 != 0) continue;
      CAPTURE(norm, static_cast<int>(kind.epilogue), static_cast<int>(kind.type));
      Check(inputs, kind, norm, products);
    }
  }
}

TEST_CASE("Gemv refuses what it cannot do", "[cuda][gemv]") {
  GemvParams params;
  params.rows = 1;
  params.n = 3;
  params.k = 12;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.k = 16;
  params.epilogue = GemvEpilogue::kGatedSilu;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.epilogue = GemvEpilogue::kStore;
  params.rows = kGemvRowsMax + 1;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.rows = 0;
  CHECK(Gemv(params, nullptr) == cudaSuccess);
}

TEST_CASE("Gemv normalises as RmsNorm does", "[cuda][gemv]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t k = GENERATE(8, 576, 4096, 5120, 14336);
  CAPTURE(k);
  Inputs inputs(random, 515, k);
  DeviceTensor normalised(DType::kBfloat16, size_t{kRows} * k);
  NormParams norm;
  norm.residual = inputs.device_residual.data();
  norm.weight = inputs.device_norm_weight.data();
  norm.out = normalised.data();
  norm.rows = kRows;
  norm.hidden = k;
  norm.epsilon = kEpsilon;
  WEFT_CUDA_CHECK(RmsNorm(norm, nullptr));
  GemvParams params = inputs.Params(false);
  params.in = normalised.data();
  const Kind kind{GemvEpilogue::kStore, DType::kFloat32};
  const auto apart = Run(inputs, kind, params, kRows).values;
  const auto fused = Run(inputs, kind, inputs.Params(true), kRows).values;
  // The sums of squares may differ in the last bit, and with them a rounding to bf16 here or there.
  CHECK(testing::RelativeError(fused, std::vector<double>(apart.begin(), apart.end())) < 1e-3);
}

// An MLP and its sum, over and over: each product reads what the one before it wrote.
class Chain {
 public:
  static constexpr uint32_t kHidden = 1024;
  static constexpr uint32_t kColumns = 2816;
  static constexpr int kLayers = 6;

  explicit Chain(std::mt19937_64& random)
      : first_(random, 2 * kColumns, kHidden),
        second_(random, kHidden, kColumns),
        residual_(size_t{kRows} * kHidden),
        activated_(size_t{kRows} * kColumns) {}

  void Launch(bool dependent, uint32_t rows, cudaStream_t stream) {
    WEFT_CUDA_CHECK(cudaMemcpyAsync(residual_.data(), first_.device_residual.data(),
                                    residual_.size() * sizeof(float), cudaMemcpyDeviceToDevice,
                                    stream));
    for (int layer = 0; layer < kLayers; ++layer) {
      GemvParams params = first_.Params(true);
      params.residual_in = residual_.data();
      params.out = activated_.data();
      params.out_stride = kColumns;
      params.epilogue = GemvEpilogue::kGatedSilu;
      params.rows = rows;
      params.dependent = dependent && layer != 0;
      WEFT_CUDA_CHECK(Gemv(params, stream));
      params = second_.Params(false);
      params.in = activated_.data();
      params.out = residual_.data();
      params.out_stride = kHidden;
      params.out_type = DType::kFloat32;
      params.epilogue = GemvEpilogue::kAccumulate;
      params.rows = rows;
      params.dependent = dependent;
      WEFT_CUDA_CHECK(Gemv(params, stream));
    }
  }
  std::vector<float> Host() const { return residual_.Host(); }

 private:
  Inputs first_;
  Inputs second_;
  DeviceArray<float> residual_;
  DeviceArray<__nv_bfloat16> activated_;
};

TEST_CASE("Dependent Gemvs see what the one before wrote", "[cuda][gemv]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t rows = GENERATE(1, 3, 4);
  CAPTURE(rows);
  Chain chain(random);
  chain.Launch(false, rows, nullptr);
  const std::vector<float> expected = chain.Host();
  for (const float value : expected) REQUIRE(std::isfinite(value));
  const Graph graph([&](cudaStream_t stream) { chain.Launch(true, rows, stream); });
  for (int i = 0; i < 20; ++i) {
    if (i % 2 == 0) {
      chain.Launch(true, rows, nullptr);
    } else {
      graph.Launch(nullptr);
    }
    const std::vector<float> out = chain.Host();
    CHECK(SameBits(out.data(), expected.data(), out.size()));
  }
}

}  // namespace
}  // namespace weft::kernels::cuda

#include "kernels/cuda/gemm/gemv.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "kernels/cuda/elementwise/norm.h"
#include "tests/kernels/cuda/gemm/gemv_rig.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda {
namespace {

using testing::Before;
using testing::DeviceArray;
using testing::DeviceTensor;
using testing::Graph;
using testing::Inputs;
using testing::kEpsilon;
using testing::kHalf;
using testing::kRows;
using testing::kSameBits;
using testing::Round;
using testing::Workspace;

// Columns that are compared: all, or of many every few and the last.
bool IsCompared(const Inputs& inputs, size_t column) {
  const size_t stride = size_t{inputs.n} * inputs.k < 10'000'000 ? 1 : 7;
  return column % stride == 0 || column + 9 > inputs.n;
}

// y, [kRows, n]; 0 where it is not compared.
std::vector<double> Products(const Inputs& inputs, Before norm) {
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
  bool bias = false;
  ActivationKind activation = ActivationKind::kSilu;
};
constexpr Kind kKinds[] = {
    {GemvEpilogue::kStore, DType::kBfloat16},
    {GemvEpilogue::kStore, DType::kFloat32},
    {GemvEpilogue::kAccumulate, DType::kFloat32},
    {GemvEpilogue::kGated, DType::kBfloat16},
    {GemvEpilogue::kStore, DType::kFloat32, true},
    {GemvEpilogue::kAccumulate, DType::kFloat32, true},
    {GemvEpilogue::kActivated, DType::kBfloat16, true, ActivationKind::kGeluTanh},
    {GemvEpilogue::kActivated, DType::kBfloat16, false, ActivationKind::kRelu},
    {GemvEpilogue::kGated, DType::kBfloat16, false, ActivationKind::kGeluErf}};

double Activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kClampedSwiglu:
      break;  // not of this kernel
  }
  return NAN;
}

double Expected(const Inputs& inputs, const Kind& kind, const std::vector<double>& products,
                size_t row, size_t column) {
  const double* y = products.data() + row * inputs.n;
  if (kind.epilogue == GemvEpilogue::kGated) {
    const double gate = Round(y[column]);
    return Activated(kind.activation, gate) * Round(y[inputs.n / 2 + column]);
  }
  const double sum = y[column] + (kind.bias ? inputs.bias[column] : 0.0f);
  if (kind.epilogue == GemvEpilogue::kActivated) return Activated(kind.activation, Round(sum));
  const bool adds = kind.epilogue == GemvEpilogue::kAccumulate;
  return sum + (adds ? inputs.before[row * inputs.n + column] : 0.0f);
}

// `out` with gaps between its rows and room behind them, as the kernel left it.
struct Result {
  std::vector<float> values;  // [rows, columns]
  bool outside = false;       // something else was written
};

uint32_t StrideOf(const Inputs& inputs) { return inputs.n + 5; }

template <typename T>
Result Run(Inputs& inputs, const Kind& kind, GemvParams params, uint32_t rows,
           const GemvTuning& tuning) {
  const bool gated = kind.epilogue == GemvEpilogue::kGated;
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
  params.activation = kind.activation;
  if (kind.bias) params.bias = inputs.device_bias.data();
  params.rows = rows;
  WEFT_CUDA_CHECK(GemvTuned(params, tuning, nullptr));
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

Result Run(Inputs& inputs, const Kind& kind, const GemvParams& params, uint32_t rows,
           const GemvTuning& tuning = {}) {
  if (kind.type == DType::kFloat32) return Run<float>(inputs, kind, params, rows, tuning);
  return Run<__nv_bfloat16>(inputs, kind, params, rows, tuning);
}

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

// One prologue and epilogue, for one to eight rows.
void Check(Inputs& inputs, const Kind& kind, Before norm, const std::vector<double>& products) {
  const bool gated = kind.epilogue == GemvEpilogue::kGated;
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
  const double tolerance = norm != Before::kNothing ? std::max(testing::Tolerance(kind.type), 4e-3)
                                                    : testing::Tolerance(kind.type);
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
  std::vector<Before> norms = {Before::kNothing, Before::kRmsNorm};
  if (size_t{shape.n} * shape.k < 7'000'000) {
    norms.insert(norms.end(), {Before::kLayerNorm, Before::kLayerNormNoBias});
  }
  for (const Before norm : norms) {
    const std::vector<double> products = Products(inputs, norm);
    for (const Kind& kind : kKinds) {
      const bool gated = kind.epilogue == GemvEpilogue::kGated;
      if (gated && shape.n % 2 != 0) continue;
      CAPTURE(static_cast<int>(norm), static_cast<int>(kind.epilogue), static_cast<int>(kind.type));
      Check(inputs, kind, norm, products);
    }
  }
}

TEST_CASE("Gemv's workspace, successor and shared memory change no bits", "[cuda][gemv]") {
  std::mt19937_64 random(testing::Seed());
  struct Case {
    uint32_t n;
    uint32_t k;
  };
  const auto shape = GENERATE(Case{2, 8}, Case{4098, 64}, Case{1058, 4096}, Case{702, 14336},
                              Case{34, 20000}, Case{40000, 520});
  const uint32_t rows = GENERATE(1, 3, 8);
  CAPTURE(shape.n, shape.k, rows);
  Inputs inputs(random, shape.n, shape.k);
  Workspace workspace;
  for (const Kind& kind : kKinds) {
    CAPTURE(static_cast<int>(kind.epilogue), static_cast<int>(kind.type));
    // Between them kinds take all three.
    const Before norm = kind.epilogue == GemvEpilogue::kAccumulate ? Before::kNothing
                        : kind.bias                                ? Before::kLayerNorm
                                                                   : Before::kRmsNorm;
    GemvParams params = inputs.Params(norm);
    const Result plain = Run(inputs, kind, params, rows);
    params.workspace = workspace.data();
    params.next = {params.weight, kind.epilogue, shape.n, shape.k};
    for (const GemvTuning& tuning : kSameBits) {
      CAPTURE(tuning.shared_bytes, tuning.claimed_percent);
      for (const bool dependent : {false, true}) {
        params.dependent = dependent;
        const Result other = Run(inputs, kind, params, rows, tuning);
        CHECK(!other.outside);
        REQUIRE(other.values.size() == plain.values.size());
        CHECK(SameBits(other.values.data(), plain.values.data(), plain.values.size()));
        CHECK(workspace.IsZero());
      }
    }
    const Result half = Run(inputs, kind, params, rows, kHalf);
    const std::vector<double> expected(plain.values.begin(), plain.values.end());
    CHECK(testing::RelativeError(half.values, expected) < testing::Tolerance(kind.type));
  }
}

TEST_CASE("Gemv refuses what it cannot do", "[cuda][gemv]") {
  GemvParams params;
  params.rows = 1;
  params.n = 3;
  params.k = 12;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.k = 16;
  params.epilogue = GemvEpilogue::kGated;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.epilogue = GemvEpilogue::kStore;
  params.norm_bias = &params;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.layer_norm = true;  // of what is no residual
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.layer_norm = false;
  params.norm_bias = nullptr;
  params.rows = kGemvRowsMax + 1;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.rows = 0;
  CHECK(Gemv(params, nullptr) == cudaSuccess);
}

TEST_CASE("Gemv normalises as RmsNorm and LayerNorm do", "[cuda][gemv]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t k = GENERATE(8, 576, 4096, 5120, 14336);
  const Before kind_of_norm = GENERATE(Before::kRmsNorm, Before::kLayerNorm);
  CAPTURE(k, static_cast<int>(kind_of_norm));
  Inputs inputs(random, 515, k);
  DeviceTensor normalised(DType::kBfloat16, size_t{kRows} * k);
  NormParams norm;
  norm.residual = inputs.device_residual.data();
  norm.weight = inputs.device_norm_weight.data();
  norm.out = normalised.data();
  norm.rows = kRows;
  norm.hidden = k;
  norm.epsilon = kEpsilon;
  if (kind_of_norm == Before::kRmsNorm) {
    WEFT_CUDA_CHECK(RmsNorm(norm, nullptr));
  } else {
    norm.bias = inputs.device_norm_bias.data();
    WEFT_CUDA_CHECK(LayerNorm(norm, nullptr));
  }
  GemvParams params = inputs.Params(Before::kNothing);
  params.in = normalised.data();
  const Kind kind{GemvEpilogue::kStore, DType::kFloat32};
  const auto apart = Run(inputs, kind, params, kRows).values;
  const auto fused = Run(inputs, kind, inputs.Params(kind_of_norm), kRows).values;
  // The sums of squares may differ in the last bit, and with them a rounding to bf16 here or there.
  CHECK(testing::RelativeError(fused, std::vector<double>(apart.begin(), apart.end())) < 1e-3);
}

// An MLP and its sum, over and over: each product reads what the one before it wrote.
class Chain {
 public:
  static constexpr uint32_t kHidden = 1024;
  static constexpr uint32_t kColumns = 2816;
  static constexpr int kLayers = 6;

  Chain(std::mt19937_64& random, const GemvTuning& tuning)
      : tuning_(tuning),
        first_(random, 2 * kColumns, kHidden),
        second_(random, kHidden, kColumns),
        residual_(size_t{kRows} * kHidden),
        activated_(size_t{kRows} * kColumns) {}

  void Launch(bool dependent, uint32_t rows, cudaStream_t stream) {
    WEFT_CUDA_CHECK(cudaMemcpyAsync(residual_.data(), first_.device_residual.data(),
                                    residual_.size() * sizeof(float), cudaMemcpyDeviceToDevice,
                                    stream));
    for (int layer = 0; layer < kLayers; ++layer) {
      GemvParams params = first_.Params(Before::kRmsNorm);
      params.residual_in = residual_.data();
      params.out = activated_.data();
      params.out_stride = kColumns;
      params.epilogue = GemvEpilogue::kGated;
      params.rows = rows;
      params.dependent = dependent && layer != 0;
      params.workspace = workspace_.data();
      params.next = {second_.Params(Before::kNothing).weight, GemvEpilogue::kAccumulate, second_.n,
                     second_.k};
      WEFT_CUDA_CHECK(GemvTuned(params, tuning_, stream));
      params = second_.Params(Before::kNothing);
      params.in = activated_.data();
      params.out = residual_.data();
      params.out_stride = kHidden;
      params.out_type = DType::kFloat32;
      params.epilogue = GemvEpilogue::kAccumulate;
      params.rows = rows;
      params.dependent = dependent;
      params.workspace = workspace_.data();
      params.next = {first_.Params(Before::kRmsNorm).weight, GemvEpilogue::kGated, first_.n,
                     first_.k};
      WEFT_CUDA_CHECK(GemvTuned(params, tuning_, stream));
    }
  }
  std::vector<float> Host() const { return residual_.Host(); }
  bool LeftWorkspaceZero() const { return workspace_.IsZero(); }

 private:
  GemvTuning tuning_;
  Workspace workspace_;
  Inputs first_;
  Inputs second_;
  DeviceArray<float> residual_;
  DeviceArray<__nv_bfloat16> activated_;
};

TEST_CASE("Dependent Gemvs see what the one before wrote", "[cuda][gemv]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t rows = GENERATE(1, 3, 8);
  const GemvTuning tuning = GENERATE(GemvTuning{}, kSameBits[1], kSameBits[2], kHalf);
  CAPTURE(rows, tuning.chunk, tuning.shared_bytes, tuning.claimed_percent);
  Chain chain(random, tuning);
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
    CHECK(chain.LeftWorkspaceZero());
  }
}

}  // namespace
}  // namespace weft::kernels::cuda

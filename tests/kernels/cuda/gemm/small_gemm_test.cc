#include "kernels/cuda/gemm/small_gemm.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/cuda/gemm/small_gemm_rig.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::Half;
using testing::RandomHalves;

// The tensor cores cut off what they align for a sum of 16, up to a thousand times over k.
constexpr double kFloatTolerance = 5e-5;
// Beyond the output in each direction, never written.
constexpr uint32_t kGuardColumns = 8;
constexpr uint32_t kGuardRows = 2;

// About 1 / sqrt(k), so that results are about 1.
float InputScale(uint32_t k) {
  return std::exp2(-std::round(std::log2(static_cast<float>(k)) / 2));
}

double Dot(const Half* a, const Half* b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(__bfloat162float(a[i])) * __bfloat162float(b[i]);
  }
  return sum;
}

double RoundedHalf(double x) { return __bfloat162float(__float2bfloat16_rn(x)); }

struct Problem {
  Problem(std::mt19937_64& random, uint32_t n, uint32_t k)
      : n(n),
        k(k),
        weight(RandomHalves(random, size_t{n} * k)),
        in(RandomHalves(random, size_t{kSmallGemmRowsMax} * k, InputScale(k))),
        device_weight(weight),
        device_in(in) {
    WEFT_CUDA_CHECK(MakeSmallGemmMap(device_weight.data(), n, k, &map));
  }

  SmallGemmParams Params(uint32_t rows, void* out, uint32_t out_stride) const {
    SmallGemmParams params;
    params.weight = map;
    params.in = device_in.data();
    params.out = out;
    params.rows = rows;
    params.n = n;
    params.k = k;
    params.out_stride = out_stride;
    return params;
  }
  double Reference(uint32_t row, uint32_t column) const {
    return Dot(in.data() + size_t{row} * k, weight.data() + size_t{column} * k, k);
  }

  uint32_t n;
  uint32_t k;
  std::vector<Half> weight;
  std::vector<Half> in;
  DeviceArray<Half> device_weight;
  DeviceArray<Half> device_in;
  CUtensorMap map;
};

// All of few, and of many the ends of tiles and some others.
std::vector<uint32_t> SomeColumns(std::mt19937_64& random, uint32_t columns) {
  std::vector<uint32_t> out;
  if (columns <= 16) {
    for (uint32_t i = 0; i < columns; ++i) out.push_back(i);
    return out;
  }
  for (uint32_t i : {0u, 7u, 63u, 64u, 127u, 128u, columns / 2, columns - 1}) {
    if (i < columns) out.push_back(i);
  }
  for (int i = 0; i < 5; ++i) out.push_back(random() % columns);
  return out;
}

float AsFloat(float x) { return x; }
float AsFloat(Half x) { return __bfloat162float(x); }

// The launch's output with its guards, as floats.
template <typename T>
std::vector<float> Run(const SmallGemmParams& given, uint32_t columns, float before) {
  SmallGemmParams params = given;
  params.out_stride = columns + kGuardColumns;
  std::vector<T> begin(size_t{params.rows + kGuardRows} * params.out_stride);
  for (size_t i = 0; i < begin.size(); ++i) {
    const bool inside = i % params.out_stride < columns && i / params.out_stride < params.rows;
    begin[i] = inside && params.epilogue == SmallGemmEpilogue::kAccumulate
                   ? static_cast<T>(before)
                   : static_cast<T>(std::nanf(""));
  }
  DeviceArray<T> out(begin);
  params.out = out.data();
  WEFT_CUDA_CHECK(SmallGemm(params, nullptr));
  std::vector<float> values;
  for (T value : out.Host()) values.push_back(AsFloat(value));
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

struct Mode {
  SmallGemmEpilogue epilogue;
  DType type;
};

// What column `column` of row `row` should be.
double Expected(const Problem& problem, const Mode& mode, uint32_t row, uint32_t column,
                float before) {
  const double y = problem.Reference(row, column);
  if (mode.epilogue == SmallGemmEpilogue::kStore) return y;
  if (mode.epilogue == SmallGemmEpilogue::kAccumulate) return before + y;
  const double gate = RoundedHalf(y);
  const double up = RoundedHalf(problem.Reference(row, problem.n / 2 + column));
  return gate / (1 + std::exp(-gate)) * up;
}

void CheckRun(std::mt19937_64& random, const Problem& problem, const Mode& mode,
              const SmallGemmParams& given) {
  SmallGemmParams params = given;
  const bool gated = mode.epilogue == SmallGemmEpilogue::kGatedSilu;
  const uint32_t columns = gated ? problem.n / 2 : problem.n;
  const uint32_t stride = columns + kGuardColumns;
  constexpr float kBefore = 0.75f;
  params.epilogue = mode.epilogue;
  params.out_type = mode.type;
  const auto run = [&] {
    return mode.type == DType::kFloat32 ? Run<float>(params, columns, kBefore)
                                        : Run<Half>(params, columns, kBefore);
  };
  const std::vector<float> out = run();
  CHECK(SameBits(out, run()));
  size_t wrong_guards = 0;
  size_t missing = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const bool inside = i % stride < columns && i / stride < params.rows;
    wrong_guards += !inside && !std::isnan(out[i]);
    missing += inside && !std::isfinite(out[i]);
  }
  CHECK(wrong_guards == 0);
  CHECK(missing == 0);
  std::vector<float> some;
  std::vector<double> reference;
  // Of many rows the last and some in front of it: each launch has its own last one.
  for (uint32_t column : SomeColumns(random, columns)) {
    for (uint32_t row = 0; row < params.rows; row += row + 5 < params.rows ? 5 : 1) {
      some.push_back(out[size_t{row} * stride + column]);
      reference.push_back(Expected(problem, mode, row, column, kBefore));
    }
  }
  CHECK(testing::RelativeError(some, reference) <
        (mode.type == DType::kFloat32 ? kFloatTolerance : testing::Tolerance(mode.type)));
}

constexpr Mode kModes[] = {{SmallGemmEpilogue::kStore, DType::kBfloat16},
                           {SmallGemmEpilogue::kStore, DType::kFloat32},
                           {SmallGemmEpilogue::kAccumulate, DType::kFloat32},
                           {SmallGemmEpilogue::kGatedSilu, DType::kBfloat16}};

TEST_CASE("Products with few rows agree with double precision", "[cuda][small_gemm]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t n = GENERATE(8, 64, 72, 200, 2056, 4096);
  const uint32_t k = GENERATE(64, 128, 576, 4096, 14336);
  const Problem problem(random, n, k);
  // With much to add up, a mode for each count of rows; all modes take turns.
  const bool large = size_t{n} * k > 4'000'000;
  uint32_t turn = random() % std::size(kModes);
  for (uint32_t rows : {1, 3, 5, 8, 9, 16, 17, 31, 33, 48, 63, 64}) {
    for (const Mode& mode : kModes) {
      if (mode.epilogue == SmallGemmEpilogue::kGatedSilu && n % 16 != 0) continue;
      if (large && &mode != &kModes[turn % std::size(kModes)]) continue;
      CAPTURE(n, k, rows, static_cast<int>(mode.epilogue), static_cast<int>(mode.type));
      CheckRun(random, problem, mode, problem.Params(rows, nullptr, 0));
    }
    ++turn;
  }
}

TEST_CASE("Every split and sharing of a product gives it", "[cuda][small_gemm]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t n = GENERATE(64, 720, 2064);
  const Problem problem(random, n, 576);
  for (uint32_t rows : {2, 30, 40, 64}) {
    for (uint32_t sharers : {1, 2}) {
      for (uint32_t splits = 1; splits * sharers <= 8; ++splits) {
        if (sharers > 1 && rows < 25) continue;
        SmallGemmParams params = problem.Params(rows, nullptr, 0);
        params.splits = static_cast<uint8_t>(splits);
        params.sharers = static_cast<uint8_t>(sharers);
        for (const Mode& mode : {kModes[1], kModes[3]}) {
          CAPTURE(n, rows, sharers, splits, static_cast<int>(mode.epilogue));
          CheckRun(random, problem, mode, params);
        }
      }
    }
  }
}

TEST_CASE("A row of a product does not depend on the others", "[cuda][small_gemm]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t n = GENERATE(72, 4096);
  const Problem problem(random, n, 4096);
  const auto run = [&](uint32_t rows) {
    DeviceArray<float> out(size_t{rows} * n);
    SmallGemmParams params = problem.Params(rows, out.data(), n);
    params.out_type = DType::kFloat32;
    WEFT_CUDA_CHECK(SmallGemm(params, nullptr));
    return out.Host();
  };
  const std::vector<float> all = run(kSmallGemmRowsMax);
  // 57 has the padded size of 64; the others rest on the hardware summing alike for all sizes.
  for (uint32_t rows : {57, 1, 8, 15, 24, 30, 32, 48}) {
    CAPTURE(n, rows);
    CHECK(SameBits(run(rows), {all.begin(), all.begin() + size_t{rows} * n}));
  }
}

TEST_CASE("Products refuse what they cannot do", "[cuda][small_gemm]") {
  std::mt19937_64 random(testing::Seed());
  const Problem problem(random, 64, 128);
  DeviceArray<float> out(64 * 64);
  const SmallGemmParams good = problem.Params(4, out.data(), 64);
  CHECK(SmallGemm(good, nullptr) == cudaSuccess);
  SmallGemmParams params = good;
  params.k = 96;
  CHECK(SmallGemm(params, nullptr) == cudaErrorInvalidValue);
  params = good;
  params.n = 60;
  CHECK(SmallGemm(params, nullptr) == cudaErrorInvalidValue);
  params = good;
  params.rows = 65;
  CHECK(SmallGemm(params, nullptr) == cudaErrorInvalidValue);
  params = good;
  params.epilogue = SmallGemmEpilogue::kAccumulate;
  CHECK(SmallGemm(params, nullptr) == cudaErrorInvalidValue);
  CUtensorMap map;
  CHECK(MakeSmallGemmMap(problem.device_weight.data(), 64, 96, &map) == cudaErrorInvalidValue);
  WEFT_CUDA_CHECK(cudaDeviceSynchronize());
}

// A chain in which each launch reads what the one before it wrote, back and forth.
TEST_CASE("Dependent products give what products in turn give", "[cuda][small_gemm]") {
  std::mt19937_64 random(testing::Seed());
  constexpr uint32_t kWide = 4096;
  constexpr uint32_t kNarrow = 512;
  constexpr int kRounds = 4;
  const Problem widen(random, kWide, kNarrow);
  const Problem narrow(random, kNarrow, kWide);
  const uint32_t rows = GENERATE(1, 16, 40, 64);
  CAPTURE(rows);
  DeviceArray<Half> wide(size_t{rows} * kWide);
  DeviceArray<Half> thin(size_t{rows} * kNarrow);
  const auto chain = [&](cudaStream_t stream, bool dependent) {
    WEFT_CUDA_CHECK(cudaMemcpyAsync(thin.data(), widen.device_in.data(), thin.size() * sizeof(Half),
                                    cudaMemcpyDeviceToDevice, stream));
    WEFT_CUDA_CHECK(cudaMemsetAsync(wide.data(), 0xff, wide.size() * sizeof(Half), stream));
    for (int i = 0; i < 2 * kRounds; ++i) {
      SmallGemmParams params = i % 2 == 0 ? widen.Params(rows, wide.data(), kWide)
                                          : narrow.Params(rows, thin.data(), kNarrow);
      params.in = i % 2 == 0 ? thin.data() : wide.data();
      // What comes before the first is no kernel.
      params.dependent = dependent && i > 0;
      WEFT_CUDA_CHECK(SmallGemm(params, stream));
    }
  };
  const auto result = [&] {
    std::vector<float> values;
    for (Half value : thin.Host()) values.push_back(__bfloat162float(value));
    return values;
  };
  chain(nullptr, false);
  const std::vector<float> reference = result();
  CHECK(std::all_of(reference.begin(), reference.end(), [](float x) { return std::isfinite(x); }));
  testing::Graph graph([&](cudaStream_t stream) { chain(stream, true); });
  for (int i = 0; i < 5; ++i) {
    chain(nullptr, true);
    CHECK(SameBits(result(), reference));
    graph.Replay();
    CHECK(SameBits(result(), reference));
  }
}

}  // namespace
}  // namespace weft::kernels::cuda

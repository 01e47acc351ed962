#include "kernels/cuda/experts/product.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cuda/experts/rows.h"
#include "tests/kernels/cuda/experts/experts_rig.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceRoutes;
using testing::DeviceTensor;
using testing::HostRoutes;

// Experts of random matrices, rows of random numbers, and a routing of them.
struct Problem {
  Problem(std::mt19937_64& random, DType type, uint32_t rows, uint32_t experts, uint32_t per_token,
          uint32_t n, uint32_t k)
      : type(type),
        rows(rows),
        experts(experts),
        per_token(per_token),
        n(n),
        k(k),
        weight(Random(random, size_t{experts} * n * k)),
        in(Random(random, size_t{rows} * per_token * k, 1.0f / std::sqrt(float(k)))),
        device_weight(type, weight),
        device_in(type, in),
        numbers(testing::RandomFloats(random, size_t{rows} * experts)),
        device_numbers(numbers),
        expected(testing::RouteOnHost(numbers, rows, experts, experts, per_token, true)),
        routes(rows, experts, per_token) {
    RouteParams route;
    route.numbers = device_numbers.data();
    route.stride = experts;
    route.rows = rows;
    route.experts = experts;
    route.per_token = per_token;
    route.renormalised = true;
    route.tile_rows = ExpertTileRows(rows, experts, per_token);
    route.out = routes.routes();
    route.workspace = routes.workspace();
    WEFT_CUDA_CHECK(RouteRows(route, nullptr));
  }

  std::vector<float> Random(std::mt19937_64& random, size_t count, float scale = 1.0f) const {
    return testing::Rounded(testing::RandomFloats(random, count, scale), type);
  }

  uint32_t places() const { return rows * per_token; }
  ExpertProductParams Params(void* out) {
    ExpertProductParams params;
    params.weight = device_weight.data();
    params.in = device_in.data();
    params.out = out;
    params.places = places();
    params.n = n;
    params.k = k;
    params.per_token = per_token;
    params.tile_rows = ExpertTileRows(rows, experts, per_token);
    params.tiles_max = ExpertTilesMax(rows, experts, per_token, params.tile_rows);
    params.tiles = routes.routes().tiles;
    params.tile_count = routes.routes().tile_count;
    params.expert_of_place = routes.routes().expert_of_place;
    params.type = type;
    return params;
  }
  double Reference(uint32_t place, uint32_t column) const {
    const float* const w =
        weight.data() + (size_t{expected.expert_of_place[place]} * n + column) * k;
    double sum = 0;
    for (uint32_t i = 0; i < k; ++i) sum += double{w[i]} * in[size_t{place} * k + i];
    return sum;
  }

  const DType type;
  const uint32_t rows, experts, per_token, n, k;
  const std::vector<float> weight;
  const std::vector<float> in;
  DeviceTensor device_weight;
  DeviceTensor device_in;
  const std::vector<float> numbers;
  const DeviceArray<float> device_numbers;
  const HostRoutes expected;
  DeviceRoutes routes;
};

double RoundedHalf(double x) { return __bfloat162float(__float2bfloat16_rn(float(x))); }

TEST_CASE("Tensor cores multiply each place by its expert", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  struct Size {
    uint32_t rows, experts, per_token, n, k;
  };
  for (const Size size :
       {Size{1, 8, 2, 256, 512}, Size{3, 5, 2, 128, 64}, Size{8, 8, 2, 384, 1024},
        Size{40, 8, 2, 128, 192}, Size{64, 16, 4, 256, 128}, Size{300, 6, 3, 128, 128},
        Size{1, 32, 8, 128, 2048}, Size{17, 3, 3, 192, 320}}) {
    INFO(size.rows << " rows, " << size.per_token << " of " << size.experts << ", n " << size.n
                   << ", k " << size.k);
    Problem problem(random, DType::kBfloat16, size.rows, size.experts, size.per_token, size.n,
                    size.k);
    DeviceTensor out(DType::kBfloat16, size_t{problem.places()} * size.n);
    ExpertProductParams params = problem.Params(out.data());
    WEFT_CUDA_CHECK(MakeExpertMap(params.weight, size.experts, size.n, size.k, &params.map));
    WEFT_CUDA_CHECK(ExpertGemm(params, nullptr));
    std::vector<double> reference;
    for (uint32_t place = 0; place < problem.places(); ++place) {
      for (uint32_t column = 0; column < size.n; ++column) {
        reference.push_back(problem.Reference(place, column));
      }
    }
    CHECK(testing::RelativeError(out.Host(), reference) < testing::Tolerance(DType::kBfloat16));
    if (size.n % 128 != 0) continue;
    // The same weights as gates and ups.
    const uint32_t columns = size.n / 2;
    DeviceTensor activated(DType::kBfloat16, size_t{problem.places()} * columns);
    params.out = activated.data();
    params.epilogue = ExpertEpilogue::kGatedSilu;
    WEFT_CUDA_CHECK(ExpertGemm(params, nullptr));
    std::vector<double> of_gates;
    for (uint32_t place = 0; place < problem.places(); ++place) {
      for (uint32_t column = 0; column < columns; ++column) {
        const double* const row = reference.data() + size_t{place} * size.n;
        const double gate = RoundedHalf(row[column]);
        const double up = RoundedHalf(row[columns + column]);
        of_gates.push_back(gate / (1 + std::exp(-gate)) * up);
      }
    }
    CHECK(testing::RelativeError(activated.Host(), of_gates) < 1e-2);
  }
}

TEST_CASE("A row's experts make the same bits whatever other rows there are", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  constexpr uint32_t kExperts = 8;
  constexpr uint32_t kN = 256;
  constexpr uint32_t kK = 1024;
  Problem many(random, DType::kBfloat16, 100, kExperts, 2, kN, kK);
  DeviceTensor of_many(DType::kBfloat16, size_t{many.places()} * kN);
  ExpertProductParams params = many.Params(of_many.data());
  WEFT_CUDA_CHECK(MakeExpertMap(params.weight, kExperts, kN, kK, &params.map));
  WEFT_CUDA_CHECK(ExpertGemm(params, nullptr));
  const std::vector<float> all = of_many.Host();
  // Each place alone, as a tile of one row.
  for (uint32_t place = 0; place < many.places(); place += 13) {
    const DeviceArray<ExpertTile> tile(
        std::vector<ExpertTile>{{many.expected.expert_of_place[place], place, 1}});
    const DeviceArray<uint32_t> one(std::vector<uint32_t>{1});
    DeviceTensor out(DType::kBfloat16, all.size());
    params.out = out.data();
    params.tile_rows = 8;
    params.tiles_max = 1;
    params.tiles = tile.data();
    params.tile_count = one.data();
    WEFT_CUDA_CHECK(ExpertGemm(params, nullptr));
    const std::vector<float> alone = out.Host();
    bool equal = true;
    for (uint32_t i = 0; i < kN; ++i) {
      equal = equal && alone[size_t{place} * kN + i] == all[size_t{place} * kN + i];
    }
    CHECK(equal);
    // Nothing else was written.
    if (place > 0) CHECK(std::isnan(alone[size_t{place} * kN - 1]));
    if (place + 1 < many.places()) CHECK(std::isnan(alone[(size_t{place} + 1) * kN]));
  }
}

TEST_CASE("Few rows are read where they are", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  for (const uint32_t rows : {1u, 5u, 8u}) {
    Problem problem(random, DType::kBfloat16, rows, 6, 3, 128, 256);
    const std::vector<float> few = problem.Random(random, size_t{rows} * problem.k, 0.06f);
    DeviceTensor device_few(DType::kBfloat16, few);
    DeviceTensor out(DType::kBfloat16, size_t{problem.places()} * problem.n);
    ExpertProductParams params = problem.Params(out.data());
    WEFT_CUDA_CHECK(MakeExpertMap(params.weight, 6, problem.n, problem.k, &params.map));
    params.in = device_few.data();
    params.in_rows = rows;
    params.row_of_place = problem.routes.routes().row_of_place;
    WEFT_CUDA_CHECK(ExpertGemm(params, nullptr));
    std::vector<double> reference;
    for (uint32_t place = 0; place < problem.places(); ++place) {
      const float* const x = few.data() + size_t{problem.expected.row_of_place[place]} * problem.k;
      for (uint32_t column = 0; column < problem.n; ++column) {
        const size_t row = size_t{problem.expected.expert_of_place[place]} * problem.n + column;
        double sum = 0;
        for (uint32_t i = 0; i < problem.k; ++i) {
          sum += double{problem.weight[row * problem.k + i]} * x[i];
        }
        reference.push_back(sum);
      }
    }
    CHECK(testing::RelativeError(out.Host(), reference) < testing::Tolerance(DType::kBfloat16));
  }
}

TEST_CASE("Any type and size is multiplied plainly, with a bias", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
    for (const uint32_t rows : {1u, 9u, 70u}) {
      Problem problem(random, type, rows, 5, 2, 44, 40);
      const std::vector<float> bias = problem.Random(random, 5 * 44);
      DeviceTensor device_bias(type, bias);
      DeviceTensor out(type, size_t{problem.places()} * 44);
      ExpertProductParams params = problem.Params(out.data());
      params.bias = device_bias.data();
      WEFT_CUDA_CHECK(ExpertProduct(params, nullptr));
      std::vector<double> reference;
      for (uint32_t place = 0; place < problem.places(); ++place) {
        for (uint32_t column = 0; column < 44; ++column) {
          reference.push_back(problem.Reference(place, column) +
                              bias[problem.expected.expert_of_place[place] * 44 + column]);
        }
      }
      CHECK(testing::RelativeError(out.Host(), reference) < testing::Tolerance(type));
    }
  }
}

TEST_CASE("Rows are spread to their places and combined again", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  constexpr uint32_t kHidden = 72;
  for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
    Problem problem(random, type, 33, 7, 3, 8, 8);
    const std::vector<float> rows = problem.Random(random, size_t{problem.rows} * kHidden);
    const std::vector<float> beside = problem.Random(random, rows.size());
    const std::vector<float> residual = testing::RandomFloats(random, rows.size());
    DeviceTensor in(type, rows);
    DeviceTensor spread(type, size_t{problem.places()} * kHidden);
    WEFT_CUDA_CHECK(SpreadRows({in.data(), spread.data(), problem.routes.routes().row_of_place,
                                problem.places(), kHidden, type},
                               nullptr));
    const std::vector<float> got = spread.Host();
    bool equal = true;
    for (uint32_t place = 0; place < problem.places(); ++place) {
      for (uint32_t i = 0; i < kHidden; ++i) {
        equal = equal && got[size_t{place} * kHidden + i] ==
                             rows[size_t{problem.expected.row_of_place[place]} * kHidden + i];
      }
    }
    CHECK(equal);
    // Weights that sum to 1 give each row back.
    DeviceTensor device_beside(type, beside);
    DeviceArray<float> out(residual);
    CombineRowsParams params;
    params.made = spread.data();
    params.beside = device_beside.data();
    params.weights = problem.routes.routes().weights;
    params.places = problem.routes.routes().places;
    params.out = out.data();
    params.accumulates = true;
    params.rows = problem.rows;
    params.per_token = problem.per_token;
    params.hidden = kHidden;
    params.type = type;
    WEFT_CUDA_CHECK(CombineRows(params, nullptr));
    std::vector<double> expected;
    for (size_t i = 0; i < rows.size(); ++i) {
      expected.push_back(double{residual[i]} + beside[i] + rows[i]);
    }
    CHECK(testing::RelativeError(out.Host(), expected) < 1e-5);
    DeviceTensor stored(type, rows.size());
    params.beside = nullptr;
    params.out = stored.data();
    params.accumulates = false;
    WEFT_CUDA_CHECK(CombineRows(params, nullptr));
    CHECK(testing::RelativeError(stored.Host(), std::vector<double>(rows.begin(), rows.end())) <
          testing::Tolerance(type));
  }
}

TEST_CASE("Rows are scaled by the sigmoid of a product", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  constexpr uint32_t kHidden = 136;
  for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
    const auto numbers = [&](size_t count, float scale) {
      return testing::Rounded(testing::RandomFloats(random, count, scale), type);
    };
    const std::vector<float> in = numbers(5 * kHidden, 0.1f);
    const std::vector<float> weight = numbers(kHidden, 1.0f);
    const std::vector<float> rows = numbers(5 * kHidden, 1.0f);
    DeviceTensor device_in(type, in);
    DeviceTensor device_weight(type, weight);
    DeviceTensor device_rows(type, rows);
    WEFT_CUDA_CHECK(ScaleRows(
        {device_in.data(), device_rows.data(), device_weight.data(), 5, kHidden, type}, nullptr));
    std::vector<double> expected;
    for (uint32_t row = 0; row < 5; ++row) {
      double sum = 0;
      for (uint32_t i = 0; i < kHidden; ++i) sum += double{in[row * kHidden + i]} * weight[i];
      for (uint32_t i = 0; i < kHidden; ++i) {
        expected.push_back(rows[row * kHidden + i] / (1 + std::exp(-sum)));
      }
    }
    CHECK(testing::RelativeError(device_rows.Host(), expected) < testing::Tolerance(type));
  }
}

}  // namespace
}  // namespace weft::kernels::cuda

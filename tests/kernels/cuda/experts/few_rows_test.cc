#include "kernels/cuda/experts/few_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/cuda/experts/experts_rig.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceRoutes;
using testing::DeviceTensor;
using testing::HostRoutes;

constexpr DType kType = DType::kBfloat16;
constexpr float kLimit = 1.5f;

struct Size {
  uint32_t rows, experts, per_token, hidden, mlp;
  bool bias = false;
};

// Experts of random matrices and rows with a routing, on both sides.
struct Problem {
  Problem(std::mt19937_64& random, const Size& size_of)
      : size(size_of),
        gate_up(Random(random, size_t{size.experts} * 2 * size.mlp * size.hidden,
                       1.0f / std::sqrt(float(size.hidden)))),
        gate_up_bias(Random(random, size_t{size.experts} * 2 * size.mlp, 1.0f)),
        down(Random(random, size_t{size.experts} * size.hidden * size.mlp,
                    1.0f / std::sqrt(float(size.mlp)))),
        down_bias(Random(random, size_t{size.experts} * size.hidden, 1.0f)),
        in(Random(random, size_t{size.rows} * size.hidden, 1.0f)),
        numbers(testing::RandomFloats(random, size_t{size.rows} * size.experts)),
        device_gate_up(kType, gate_up),
        device_gate_up_bias(kType, gate_up_bias),
        device_down(kType, down),
        device_down_bias(kType, down_bias),
        device_in(kType, in),
        device_numbers(numbers),
        expected(testing::RouteOnHost(numbers, size.rows, size.experts, size.experts,
                                      size.per_token, true)),
        routes(size.rows, size.experts, size.per_token),
        made(kType, size_t{places()} * size.mlp) {}

  static std::vector<float> Random(std::mt19937_64& random, size_t count, float scale) {
    return testing::Rounded(testing::RandomFloats(random, count, scale), kType);
  }
  uint32_t places() const { return size.rows * size.per_token; }

  void Route(cudaStream_t stream) {
    RouteParams route;
    route.numbers = device_numbers.data();
    route.stride = size.experts;
    route.rows = size.rows;
    route.experts = size.experts;
    route.per_token = size.per_token;
    route.renormalised = true;
    route.tile_rows = kExpertTileRowsMin;
    route.out = routes.routes();
    route.workspace = routes.workspace();
    WEFT_CUDA_CHECK(RouteRows(route, stream));
  }
  FewRowsExpertsParams Params(void* out) {
    FewRowsExpertsParams params;
    params.gate_up = device_gate_up.data();
    params.down = device_down.data();
    if (size.bias) {
      params.gate_up_bias = device_gate_up_bias.data();
      params.down_bias = device_down_bias.data();
      params.activation = ActivationKind::kClampedSwiglu;
      params.limit = kLimit;
    }
    params.in = device_in.data();
    params.made = made.data();
    params.out = out;
    params.routes = routes.routes();
    params.rows = size.rows;
    params.experts = size.experts;
    params.per_token = size.per_token;
    params.hidden = size.hidden;
    params.mlp = size.mlp;
    params.workspace = workspace.data();
    return params;
  }

  double Product(const std::vector<float>& weight, const std::vector<float>& bias, uint32_t expert,
                 uint32_t n, uint32_t j, const float* x, uint32_t k) const {
    const float* const w = weight.data() + (size_t{expert} * n + j) * k;
    double sum = size.bias ? bias[size_t{expert} * n + j] : 0;
    for (uint32_t i = 0; i < k; ++i) sum += double{w[i]} * x[i];
    return sum;
  }
  static double Round(double x) { return __bfloat162float(__float2bfloat16_rn(float(x))); }

  // [places, mlp].
  std::vector<double> MadeReference() const {
    std::vector<double> out;
    for (uint32_t place = 0; place < places(); ++place) {
      const float* const x = in.data() + size_t{expected.row_of_place[place]} * size.hidden;
      const uint32_t expert = expected.expert_of_place[place];
      for (uint32_t j = 0; j < size.mlp; ++j) {
        double g = Round(Product(gate_up, gate_up_bias, expert, 2 * size.mlp, j, x, size.hidden));
        double u = Round(
            Product(gate_up, gate_up_bias, expert, 2 * size.mlp, size.mlp + j, x, size.hidden));
        if (!size.bias) {
          out.push_back(g / (1 + std::exp(-g)) * u);
        } else {
          g = std::min<double>(g, kLimit);
          u = std::clamp<double>(u, -kLimit, kLimit);
          out.push_back(g / (1 + std::exp(-1.702 * g)) * (u + 1));
        }
      }
    }
    return out;
  }
  // [rows, hidden], of what lies between the products.
  std::vector<double> OutReference(const std::vector<float>& beside) const {
    const std::vector<float> x = made.Host();
    std::vector<double> out(beside.begin(), beside.end());
    for (uint32_t i = 0; i < places(); ++i) {
      const uint32_t place = expected.places[i];
      for (uint32_t j = 0; j < size.hidden; ++j) {
        out[size_t{i / size.per_token} * size.hidden + j] +=
            expected.weights[i] * Product(down, down_bias, expected.experts[i], size.hidden, j,
                                          x.data() + size_t{place} * size.mlp, size.mlp);
      }
    }
    return out;
  }

  const Size size;
  const std::vector<float> gate_up, gate_up_bias, down, down_bias, in;
  const std::vector<float> numbers;
  DeviceTensor device_gate_up, device_gate_up_bias, device_down, device_down_bias, device_in;
  DeviceArray<float> device_numbers;
  const HostRoutes expected;
  DeviceRoutes routes;
  DeviceTensor made;
  DeviceArray<uint8_t> workspace{std::vector<uint8_t>(kGemvWorkspaceBytes)};
};

TEST_CASE("Few rows go through their experts", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  for (const Size size :
       {Size{1, 8, 2, 256, 512}, Size{1, 128, 8, 2048, 768}, Size{3, 5, 2, 128, 64},
        Size{8, 64, 8, 320, 96}, Size{4, 4, 4, 2880, 200, true}, Size{2, 8, 2, 72, 1096},
        Size{5, 33, 1, 1024, 8}, Size{7, 3, 3, 2056, 56, true}, Size{1, 1, 1, 8, 2048},
        Size{1, 8, 2, 96, 14336}}) {
    INFO(size.rows << " rows, " << size.per_token << " of " << size.experts << ", hidden "
                   << size.hidden << ", mlp " << size.mlp);
    REQUIRE(ServesFewRowsExperts(size.rows, size.per_token, size.hidden, size.mlp, kType));
    Problem problem(random, size);
    problem.Route(nullptr);
    const size_t numbers = size_t{size.rows} * size.hidden;
    const std::vector<float> beside = Problem::Random(random, numbers, 1.0f);
    DeviceTensor device_beside(kType, beside);
    DeviceTensor stored(kType, numbers);
    FewRowsExpertsParams params = problem.Params(stored.data());
    params.beside = device_beside.data();
    WEFT_CUDA_CHECK(FewRowsExperts(params, nullptr));
    CHECK(testing::RelativeError(problem.made.Host(), problem.MadeReference()) < 1e-2);
    CHECK(testing::RelativeError(stored.Host(), problem.OutReference(beside)) <
          testing::Tolerance(kType));

    const std::vector<float> residual = testing::RandomFloats(random, numbers);
    DeviceArray<float> added(residual);
    params = problem.Params(added.data());
    params.accumulates = true;
    WEFT_CUDA_CHECK(FewRowsExperts(params, nullptr));
    CHECK(testing::RelativeError(added.Host(), problem.OutReference(residual)) < 1e-4);
  }
}

// As a step launches them: each may begin before the one in front of it has ended.
TEST_CASE("Few rows go through their experts in overlapping launches", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  Problem problem(random, {4, 64, 8, 2048, 768});
  problem.Route(nullptr);
  DeviceTensor out(kType, size_t{4} * 2048);
  WEFT_CUDA_CHECK(FewRowsExperts(problem.Params(out.data()), nullptr));
  const std::vector<float> one_by_one = out.Host();
  cudaStream_t stream;
  WEFT_CUDA_CHECK(cudaStreamCreate(&stream));
  bool same = true;
  for (int turn = 0; turn < 50 && same; ++turn) {
    WEFT_CUDA_CHECK(cudaMemset(out.data(), 0, size_t{4} * 2048 * sizeof(__nv_bfloat16)));
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    for (int layer = 0; layer < 3; ++layer) {
      problem.Route(stream);
      FewRowsExpertsParams params = problem.Params(out.data());
      params.dependent = true;
      WEFT_CUDA_CHECK(FewRowsExperts(params, stream));
    }
    WEFT_CUDA_CHECK(cudaStreamSynchronize(stream));
    same = out.Host() == one_by_one;
  }
  CHECK(same);
  WEFT_CUDA_CHECK(cudaStreamDestroy(stream));
}

// What a row does not take it does not see, be it NaN.
TEST_CASE("A few row's bits depend on its own experts alone", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  const Size size = {6, 16, 3, 512, 256};
  Problem problem(random, size);
  problem.Route(nullptr);
  DeviceTensor out(kType, size_t{size.rows} * size.hidden);
  WEFT_CUDA_CHECK(FewRowsExperts(problem.Params(out.data()), nullptr));
  const std::vector<float> together = out.Host();
  for (uint32_t row = 0; row < size.rows; ++row) {
    INFO("row " << row);
    Problem alone(random, {1, size.experts, size.per_token, size.hidden, size.mlp});
    const auto of_row = [row](const std::vector<float>& all, size_t width) {
      return std::vector<float>(all.begin() + row * width, all.begin() + (row + 1) * width);
    };
    DeviceTensor in(kType, of_row(problem.in, size.hidden));
    const DeviceArray<float> numbers(of_row(problem.numbers, size.experts));
    // The experts that the row does not take become NaN.
    std::vector<float> gate_up = problem.gate_up;
    std::vector<float> down = problem.down;
    const auto* const taken = problem.expected.experts.data() + size_t{row} * size.per_token;
    for (uint32_t expert = 0; expert < size.experts; ++expert) {
      if (std::find(taken, taken + size.per_token, expert) != taken + size.per_token) continue;
      const size_t of_gate_up = size_t{2} * size.mlp * size.hidden;
      const size_t of_down = size_t{size.mlp} * size.hidden;
      std::fill_n(gate_up.begin() + expert * of_gate_up, of_gate_up, NAN);
      std::fill_n(down.begin() + expert * of_down, of_down, NAN);
    }
    DeviceTensor device_gate_up(kType, gate_up);
    DeviceTensor device_down(kType, down);
    RouteParams route;
    route.numbers = numbers.data();
    route.stride = size.experts;
    route.rows = 1;
    route.experts = size.experts;
    route.per_token = size.per_token;
    route.renormalised = true;
    route.tile_rows = kExpertTileRowsMin;
    route.out = alone.routes.routes();
    route.workspace = alone.routes.workspace();
    WEFT_CUDA_CHECK(RouteRows(route, nullptr));
    DeviceTensor one(kType, size.hidden);
    FewRowsExpertsParams params = alone.Params(one.data());
    params.in = in.data();
    params.gate_up = device_gate_up.data();
    params.down = device_down.data();
    WEFT_CUDA_CHECK(FewRowsExperts(params, nullptr));
    CHECK(one.Host() == of_row(together, size.hidden));
  }
}

// A row that chooses its experts itself, with a router that has a bias where the experts have some.
struct RoutedRow {
  RoutedRow(std::mt19937_64& random, const Size& size)
      : problem(random, size),
        residual(testing::RandomFloats(random, size.hidden, 3.0f)),
        norm(Problem::Random(random, size.hidden, 1.0f)),
        router(Problem::Random(random, size_t{size.experts} * size.hidden,
                               1.0f / std::sqrt(float(size.hidden)))),
        bias(Problem::Random(random, size.experts, 1.0f)),
        device_residual(residual),
        device_norm(kType, norm),
        device_router(kType, router),
        device_bias(kType, bias),
        numbers(size.experts) {}

  FewRowsExpertsParams Params(void* out) {
    FewRowsExpertsParams params = problem.Params(out);
    params.in = nullptr;
    params.router.weight = device_router.data();
    if (problem.size.bias) params.router.bias = device_bias.data();
    params.router.residual = device_residual.data();
    params.router.norm_weight = device_norm.data();
    params.router.epsilon = 1e-6f;
    params.router.numbers = numbers.data();
    params.router.choice.experts = problem.size.experts;
    params.router.choice.per_token = problem.size.per_token;
    params.router.choice.renormalised = true;
    return params;
  }
  std::vector<float> Normed() const {
    double squares = 0;
    for (const float x : residual) squares += double{x} * x;
    const double scale = 1 / std::sqrt(squares / residual.size() + 1e-6);
    std::vector<float> out;
    for (size_t i = 0; i < residual.size(); ++i) out.push_back(residual[i] * scale * norm[i]);
    return testing::Rounded(out, kType);
  }
  std::vector<double> NumbersOf(const std::vector<float>& normed) const {
    std::vector<double> out;
    for (uint32_t expert = 0; expert < problem.size.experts; ++expert) {
      double sum = problem.size.bias ? bias[expert] : 0;
      for (size_t i = 0; i < normed.size(); ++i) {
        sum += double{normed[i]} * router[expert * normed.size() + i];
      }
      out.push_back(sum);
    }
    return out;
  }

  Problem problem;
  std::vector<float> residual;
  const std::vector<float> norm, router, bias;
  DeviceArray<float> device_residual;
  DeviceTensor device_norm, device_router, device_bias;
  DeviceArray<float> numbers;
};

TEST_CASE("A single row chooses its experts as routing in front would", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  for (const Size size :
       {Size{1, 8, 2, 256, 512}, Size{1, 128, 8, 2048, 768}, Size{1, 200, 32, 4104, 64},
        Size{1, 256, 6, 72, 96}, Size{1, 32, 4, 2880, 96, true}, Size{1, 1, 1, 8, 8}}) {
    INFO(size.per_token << " of " << size.experts << ", hidden " << size.hidden);
    RoutedRow row(random, size);
    DeviceTensor out(kType, size.hidden);
    WEFT_CUDA_CHECK(FewRowsExperts(row.Params(out.data()), nullptr));
    const std::vector<float> routed = out.Host();
    const std::vector<float> normed = row.Normed();
    const std::vector<float> numbers = row.numbers.Host();
    CHECK(testing::RelativeError(numbers, row.NumbersOf(normed)) < 1e-3);
    const HostRoutes routes =
        testing::RouteOnHost(numbers, 1, size.experts, size.experts, size.per_token, true);
    CHECK(row.problem.routes.expert_of_place() == routes.expert_of_place);
    CHECK(row.problem.routes.row_of_place() == std::vector<uint32_t>(size.per_token));
    // The same by the routing's own launch, of the numbers that were used here.
    row.problem.device_numbers.Set(numbers);
    row.problem.Route(nullptr);
    DeviceTensor in(kType, normed);
    FewRowsExpertsParams params = row.problem.Params(out.data());
    params.in = in.data();
    WEFT_CUDA_CHECK(FewRowsExperts(params, nullptr));
    const std::vector<float> apart = out.Host();
    const std::vector<double> expected(apart.begin(), apart.end());
    CHECK(testing::RelativeError(routed, expected) < 1e-2);
  }
}

// As a step has it: what the row makes is added to what it was chosen from, layer by layer.
TEST_CASE("Rows that choose their experts overlap without a race", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  RoutedRow row(random, {1, 128, 8, 2048, 768});
  cudaStream_t stream;
  WEFT_CUDA_CHECK(cudaStreamCreate(&stream));
  std::vector<float> first;
  bool same = true;
  for (int turn = 0; turn < 50 && same; ++turn) {
    row.device_residual.Set(row.residual);
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    for (int layer = 0; layer < 4; ++layer) {
      FewRowsExpertsParams params = row.Params(row.device_residual.data());
      params.accumulates = true;
      params.dependent = layer > 0;
      WEFT_CUDA_CHECK(FewRowsExperts(params, stream));
    }
    WEFT_CUDA_CHECK(cudaStreamSynchronize(stream));
    if (turn == 0) first = row.device_residual.Host();
    same = row.device_residual.Host() == first;
  }
  CHECK(same);
  CHECK(first != row.residual);
  WEFT_CUDA_CHECK(cudaStreamDestroy(stream));
}

TEST_CASE("A row of NaN takes experts and gives NaN", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  RoutedRow row(random, {1, 16, 3, 256, 64});
  row.residual[77] = NAN;
  row.device_residual.Set(row.residual);
  DeviceTensor out(kType, 256);
  WEFT_CUDA_CHECK(FewRowsExperts(row.Params(out.data()), nullptr));
  CHECK(row.problem.routes.expert_of_place() == std::vector<uint32_t>{0, 1, 2});
  for (const float x : out.Host()) CHECK(std::isnan(x));
}

TEST_CASE("Few rows' experts have limits", "[cuda][experts]") {
  CHECK(ServesFewRowsExperts(4, 8, 2048, 768, kType));
  CHECK(ServesFewRowsExperts(1, 2, 4096, 14336, kType));
  CHECK_FALSE(ServesFewRowsExperts(4, 2, 4096, 14336, kType));
  CHECK_FALSE(ServesFewRowsExperts(9, 1, 64, 64, kType));
  CHECK_FALSE(ServesFewRowsExperts(8, 9, 64, 64, kType));
  CHECK_FALSE(ServesFewRowsExperts(1, 1, 60, 64, kType));
  CHECK_FALSE(ServesFewRowsExperts(1, 1, 64, 64, DType::kFloat32));
  std::mt19937_64 random(testing::Seed());
  Problem problem(random, {1, 2, 1, 16, 8});
  DeviceTensor out(kType, 16);
  FewRowsExpertsParams params = problem.Params(out.data());
  params.rows = kGemvRowsMax + 1;
  CHECK(FewRowsExperts(params, nullptr) == cudaErrorInvalidValue);
  params = problem.Params(out.data());
  params.mlp = 12;
  CHECK(FewRowsExperts(params, nullptr) == cudaErrorInvalidValue);
  params = problem.Params(out.data());
  params.workspace = nullptr;
  CHECK(FewRowsExperts(params, nullptr) == cudaErrorInvalidValue);
  RoutedRow row(random, {1, 4, 2, 16, 8});
  params = row.Params(out.data());
  params.router.choice.per_token = 1;
  CHECK(FewRowsExperts(params, nullptr) == cudaErrorInvalidValue);
  params = row.Params(out.data());
  params.rows = 2;
  CHECK(FewRowsExperts(params, nullptr) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace weft::kernels::cuda

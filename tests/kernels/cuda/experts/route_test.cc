#include "kernels/cuda/experts/route.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/kernels/cuda/experts/experts_rig.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceRoutes;
using testing::HostRoutes;

RouteParams Params(const DeviceArray<float>& numbers, uint32_t stride, uint32_t rows,
                   uint32_t experts, uint32_t per_token, DeviceRoutes& routes) {
  RouteParams params;
  params.numbers = numbers.data();
  params.stride = stride;
  params.rows = rows;
  params.experts = experts;
  params.per_token = per_token;
  params.out = routes.routes();
  params.workspace = routes.workspace();
  return params;
}

// All places in order, each in one tile of its own expert, and no tile longer than it may be.
void CheckTiles(const std::vector<ExpertTile>& tiles, const HostRoutes& expected,
                uint32_t tile_rows) {
  uint32_t place = 0;
  for (const ExpertTile& tile : tiles) {
    CHECK(tile.begin == place);
    CHECK(tile.rows >= 1);
    CHECK(tile.rows <= tile_rows);
    for (uint32_t i = 0; i < tile.rows; ++i) {
      REQUIRE(place < expected.expert_of_place.size());
      CHECK(expected.expert_of_place[place++] == tile.expert);
    }
    // Only the last tile of an expert is shorter.
    if (tile.rows < tile_rows && place < expected.expert_of_place.size()) {
      CHECK(expected.expert_of_place[place] != tile.expert);
    }
  }
  CHECK(place == expected.expert_of_place.size());
}

TEST_CASE("Rows take the experts of the largest numbers, sorted by expert", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  struct Size {
    uint32_t experts, per_token;
  };
  for (const Size size : {Size{1, 1}, Size{5, 2}, Size{8, 2}, Size{11, 4}, Size{60, 4},
                          Size{128, 8}, Size{200, 32}, Size{1024, 10}}) {
    for (const uint32_t rows : {1u, 2u, 7u, 64u, 65u, 300u}) {
      const bool renormalised = random() % 2 == 0;
      const uint32_t stride = (size.experts + 7) / 8 * 8;
      std::vector<float> numbers = testing::RandomFloats(random, size_t{rows} * stride, 2.0f);
      // Equal numbers: the lower expert wins.
      for (float& x : numbers) x = std::round(x * 4) / 4;
      const HostRoutes expected =
          testing::RouteOnHost(numbers, rows, stride, size.experts, size.per_token, renormalised);
      const DeviceArray<float> on_device(numbers);
      for (const uint32_t tile_rows : {8u, 64u}) {
        DeviceRoutes routes(rows, size.experts, size.per_token);
        RouteParams params = Params(on_device, stride, rows, size.experts, size.per_token, routes);
        params.renormalised = renormalised;
        params.tile_rows = tile_rows;
        INFO(rows << " rows, " << size.per_token << " of " << size.experts);
        WEFT_CUDA_CHECK(RouteRows(params, nullptr));
        CHECK(routes.places() == expected.places);
        CHECK(routes.row_of_place() == expected.row_of_place);
        CHECK(routes.expert_of_place() == expected.expert_of_place);
        const std::vector<float> weights = routes.weights();
        double worst = 0;
        for (size_t i = 0; i < weights.size(); ++i) {
          worst = std::max(worst, std::abs(weights[i] - expected.weights[i]));
        }
        CHECK(worst < 1e-5);
        CheckTiles(routes.tiles(), expected, tile_rows);
      }
    }
  }
}

// The choices of a row by sigmoids and groups, in double precision.
std::vector<std::pair<uint32_t, double>> ChooseOnHost(const RouteParams& params, const float* x,
                                                      const std::vector<float>& bias) {
  const uint32_t size = params.experts / params.groups;
  const auto score = [&](uint32_t i) {
    return params.sigmoid ? 1 / (1 + std::exp(-double{x[i]})) : double{x[i]};
  };
  const auto by = [&](uint32_t i) { return score(i) + (params.sigmoid ? bias[i] : 0.0); };
  std::vector<double> worth;
  for (uint32_t group = 0; group < params.groups; ++group) {
    std::vector<double> best;
    for (uint32_t i = 0; i < size; ++i) best.push_back(by(group * size + i));
    std::sort(best.rbegin(), best.rend());
    worth.push_back(params.group_best == 1 ? best[0] : best[0] + best[1]);
  }
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < params.experts; ++i) {
    uint32_t better = 0;
    for (uint32_t other = 0; other < params.groups; ++other) {
      better += worth[other] > worth[i / size] ? 1 : 0;
    }
    if (better < params.groups_taken) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return by(a) > by(b); });
  order.resize(params.per_token);
  std::sort(order.begin(), order.end());
  double all = 0;
  double chosen = 0;
  const auto share = [&](uint32_t i) { return params.sigmoid ? score(i) : std::exp(double{x[i]}); };
  for (uint32_t i = 0; i < params.experts; ++i) all += share(i);
  for (const uint32_t i : order) chosen += share(i);
  const double sum = params.renormalised ? chosen : params.sigmoid ? 1.0 : all;
  std::vector<std::pair<uint32_t, double>> out;
  for (const uint32_t i : order) out.emplace_back(i, params.scale * share(i) / sum);
  return out;
}

TEST_CASE("Experts are chosen from the best groups, by sigmoids with a bias too",
          "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  struct Size {
    uint32_t experts, per_token, groups, taken;
  };
  constexpr uint32_t kRows = 70;
  for (const Size size : {Size{12, 4, 3, 2}, Size{64, 6, 1, 1}, Size{160, 6, 8, 3},
                          Size{256, 8, 8, 4}, Size{64, 3, 32, 2}}) {
    for (const bool sigmoid : {false, true}) {
      const uint32_t stride = (size.experts + 7) / 8 * 8;
      const std::vector<float> numbers =
          testing::RandomFloats(random, size_t{kRows} * stride, 2.0f);
      const std::vector<float> bias = testing::RandomFloats(random, size.experts, 0.3f);
      const DeviceArray<float> on_device(numbers);
      const DeviceArray<float> bias_on_device(bias);
      DeviceRoutes routes(kRows, size.experts, size.per_token);
      RouteParams params = Params(on_device, stride, kRows, size.experts, size.per_token, routes);
      params.sigmoid = sigmoid;
      if (sigmoid) params.choice_bias = bias_on_device.data();
      params.renormalised = sigmoid;
      params.groups = size.groups;
      params.groups_taken = size.taken;
      params.group_best = sigmoid ? 2 : 1;
      params.scale = 2.5f;
      WEFT_CUDA_CHECK(RouteRows(params, nullptr));
      const std::vector<float> weights = routes.weights();
      const std::vector<uint32_t> places = routes.places();
      const std::vector<uint32_t> experts = routes.expert_of_place();
      INFO(size.per_token << " of " << size.experts << ", sigmoid " << sigmoid);
      for (uint32_t row = 0; row < kRows; ++row) {
        const auto want = ChooseOnHost(params, numbers.data() + size_t{row} * stride, bias);
        for (uint32_t i = 0; i < size.per_token; ++i) {
          const size_t at = size_t{row} * size.per_token + i;
          REQUIRE(experts[places[at]] == want[i].first);
          REQUIRE(weights[at] == Approx(want[i].second).epsilon(1e-5));
        }
      }
    }
  }
}

TEST_CASE("A row with a number that is none gets weights that are none", "[cuda][experts]") {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> numbers(3 * 8, 0.5f);
    numbers[8 + 6] = bad;
    const DeviceArray<float> on_device(numbers);
    DeviceRoutes routes(3, 7, 2);
    WEFT_CUDA_CHECK(RouteRows(Params(on_device, 8, 3, 7, 2, routes), nullptr));
    const std::vector<float> weights = routes.weights();
    for (size_t i = 0; i < weights.size(); ++i) CHECK(std::isnan(weights[i]) == (i / 2 == 1));
    CHECK(routes.expert_of_place() == std::vector<uint32_t>{0, 0, 0, 1, 1, 1});
  }
}

TEST_CASE("Routing refuses sizes beyond its limits", "[cuda][experts]") {
  const DeviceArray<float> numbers(64);
  DeviceRoutes routes(1, 32, 32);
  CHECK(RouteRows(Params(numbers, 32, 1, 0, 1, routes), nullptr) == cudaErrorInvalidValue);
  CHECK(RouteRows(Params(numbers, 2048, 1, 1025, 1, routes), nullptr) == cudaErrorInvalidValue);
  CHECK(RouteRows(Params(numbers, 64, 1, 64, 33, routes), nullptr) == cudaErrorInvalidValue);
  CHECK(RouteRows(Params(numbers, 8, 1, 8, 9, routes), nullptr) == cudaErrorInvalidValue);
  CHECK(RouteRows(Params(numbers, 8, 1, 16, 2, routes), nullptr) == cudaErrorInvalidValue);
  RouteParams grouped = Params(numbers, 32, 1, 32, 4, routes);
  for (const auto& [groups, taken] : {std::pair{0u, 1u}, {5u, 1u}, {16u, 1u}, {8u, 0u}}) {
    grouped.groups = groups;
    grouped.groups_taken = taken;
    CHECK(RouteRows(grouped, nullptr) == cudaErrorInvalidValue);
  }
}

}  // namespace
}  // namespace weft::kernels::cuda

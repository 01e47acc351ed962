#include "kernels/cuda/experts/route.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

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
}

}  // namespace
}  // namespace weft::kernels::cuda

#include "kernels/cuda/elementwise/rotary_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <utility>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;

RotaryTableParams Params(uint32_t positions, uint32_t pairs, float theta) {
  RotaryTableParams params;
  params.pairs = pairs;
  params.positions = positions;
  for (uint32_t i = 0; i < pairs; ++i) {
    params.inverse_frequencies[i] =
        std::pow(theta, -static_cast<float>(i) / static_cast<float>(pairs));
  }
  return params;
}

// A step of float32 beside one is 6e-8.
TEST_CASE("A rotary table holds cosines and sines of float32 angles times a factor",
          "[cuda][rotary_table]") {
  const auto [positions, pairs] =
      GENERATE(std::pair(1u, 1u), std::pair(7u, 3u), std::pair(300u, 64u), std::pair(1000u, 48u),
               std::pair(131072u, 32u), std::pair(70000u, 128u));
  CAPTURE(positions, pairs);
  RotaryTableParams params = Params(positions, pairs, 500000.0f);
  DeviceArray<float2> table(size_t{positions} * pairs + 1);
  const float2 behind = table.Host().back();
  params.out = table.data();
  params.factor = GENERATE(1.0f, 0.75f);
  CAPTURE(params.factor);
  WEFT_CUDA_CHECK(FillRotaryTable(params, nullptr));
  const std::vector<float2> out = table.Host();
  double worst = 0;
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    const auto position = static_cast<float>(i / pairs);
    const double angle = position * params.inverse_frequencies[i % pairs];
    worst = std::max({worst, std::abs(out[i].x - params.factor * std::cos(angle)),
                      std::abs(out[i].y - params.factor * std::sin(angle))});
    if (!(worst < 1e-7)) break;
  }
  CHECK(worst < 1e-7);
  CHECK(std::memcmp(&out.back(), &behind, sizeof(behind)) == 0);
}

TEST_CASE("A rotary table refuses more pairs than a head has", "[cuda][rotary_table]") {
  DeviceArray<float2> table(size_t{1});
  RotaryTableParams params = Params(1, 1, 10000.0f);
  params.out = table.data();
  params.pairs = kRotaryPairsMax + 1;
  CHECK(FillRotaryTable(params, nullptr) == cudaErrorInvalidValue);
  params.pairs = 0;
  CHECK(FillRotaryTable(params, nullptr) == cudaErrorInvalidValue);
}

TEST_CASE("Rotary table: time", "[cuda][rotary_table][time]") {
  RotaryTableParams params = Params(131072, 64, 500000.0f);
  DeviceArray<float2> table(size_t{131072} * 64);
  params.out = table.data();
  testing::Report("rotary table", "131072 positions of 64 pairs",
                  testing::MedianUs([&](cudaStream_t stream) {
                    WEFT_CUDA_CHECK(FillRotaryTable(params, stream));
                  }),
                  8.0 * 131072 * 64);
}

}  // namespace
}  // namespace weft::kernels::cuda

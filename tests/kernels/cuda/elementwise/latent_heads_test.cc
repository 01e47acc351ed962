#include "kernels/cuda/elementwise/latent_heads.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/cuda/elementwise/rope.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

constexpr DType kTypes[] = {DType::kFloat32, DType::kBfloat16};

struct Product {
  uint32_t heads, in_dim, inputs, out_dim, outputs;
};

std::vector<float> RunProduct(const Product& shape, DType type, uint32_t rows,
                              const std::vector<float>& in, const std::vector<float>& weight) {
  DeviceTensor x(type, in);
  DeviceTensor w(type, weight);
  DeviceTensor out(type, size_t{rows} * shape.heads * shape.out_dim);
  HeadProductParams params;
  params.in = x.data();
  params.in_dim = shape.in_dim;
  params.weight = w.data();
  params.out = out.data();
  params.out_dim = shape.out_dim;
  params.rows = rows;
  params.heads = shape.heads;
  params.inputs = shape.inputs;
  params.outputs = shape.outputs;
  params.type = type;
  WEFT_CUDA_CHECK(HeadProduct(params, nullptr));
  return out.Host();
}

TEST_CASE("Each head is multiplied by its own matrix, the rest of a row stays",
          "[cuda][elementwise]") {
  std::mt19937_64 random(testing::Seed());
  for (const Product& shape : {Product{3, 24, 16, 48, 40}, Product{16, 192, 128, 576, 512},
                               Product{16, 512, 512, 128, 128}, Product{1, 1024, 1024, 7, 7}}) {
    for (const DType type : kTypes) {
      for (const uint32_t rows : {1u, 8u, 21u}) {
        const auto in = testing::Rounded(
            testing::RandomFloats(random, size_t{rows} * shape.heads * shape.in_dim), type);
        const auto weight = testing::Rounded(
            testing::RandomFloats(random, size_t{shape.heads} * shape.outputs * shape.inputs),
            type);
        const std::vector<float> out = RunProduct(shape, type, rows, in, weight);
        INFO(shape.inputs << " to " << shape.outputs << ", " << rows << " rows");
        std::vector<float> made;
        std::vector<double> expected;
        for (size_t head = 0; head < size_t{rows} * shape.heads; ++head) {
          for (uint32_t j = 0; j < shape.out_dim; ++j) {
            const float got = out[head * shape.out_dim + j];
            if (j >= shape.outputs) {
              REQUIRE(std::isnan(got));
              continue;
            }
            const size_t row = head % shape.heads * shape.outputs + j;
            double sum = 0;
            for (uint32_t i = 0; i < shape.inputs; ++i) {
              sum += double{in[head * shape.in_dim + i]} * weight[row * shape.inputs + i];
            }
            made.push_back(got);
            expected.push_back(sum);
          }
        }
        CHECK(testing::RelativeError(made, expected) < testing::Tolerance(type));
        // The first row alone.
        const std::vector<float> first(in.begin(), in.begin() + shape.heads * shape.in_dim);
        const std::vector<float> alone = RunProduct(shape, type, 1, first, weight);
        for (size_t i = 0; i < alone.size(); ++i) {
          if (!std::isnan(alone[i])) REQUIRE(alone[i] == out[i]);
        }
      }
    }
  }
}

// `size` numbers of which the last `dims` are rotated.
std::vector<double> Turn(const float* in, uint32_t size, uint32_t dims, const float2* turns) {
  std::vector<double> out(in, in + size);
  const uint32_t half = dims / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const double low = in[size - dims + i];
    const double high = in[size - dims + half + i];
    out[size - dims + i] = low * turns[i].x - high * turns[i].y;
    out[size - dims + half + i] = high * turns[i].x + low * turns[i].y;
  }
  return out;
}

bool Near(float got, double want, DType type) {
  const double relative = type == DType::kFloat32 ? 1e-6 : 1.0 / 256;
  return std::abs(got - want) <= relative * std::abs(want) + 4e-6;
}

TEST_CASE("Ends of queries and latents are rotated, latents go into the cache",
          "[cuda][elementwise]") {
  std::mt19937_64 random(testing::Seed());
  constexpr uint32_t kHeads = 5;
  constexpr uint32_t kInDim = 40;
  constexpr uint32_t kDims = 16;
  constexpr uint32_t kDim = 24 + kDims;
  const std::vector<uint32_t> positions = {0, 63, 64, 100, 17};
  const std::vector<uint32_t> sequences = {0, 1, 1, 0, kNoSequence};
  const std::vector<uint32_t> tables = {3, 0, 2, 1};
  const auto rows = static_cast<uint32_t>(positions.size());
  std::vector<float2> turns(size_t{128} * kDims / 2);
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto angle = static_cast<float>(i);
    turns[i] = {std::cos(angle), std::sin(angle)};
  }
  for (const DType type : kTypes) {
    const auto in =
        testing::Rounded(testing::RandomFloats(random, size_t{rows} * kHeads * kInDim), type);
    const auto latents = testing::Rounded(testing::RandomFloats(random, size_t{rows} * kDim), type);
    DeviceTensor made(type, in);
    DeviceTensor latent(type, latents);
    DeviceTensor query(type, size_t{rows} * kHeads * kDim);
    DeviceTensor keys(type, tables.size() * kKvBlockTokens * kDim);
    const DeviceArray<uint32_t> at(positions);
    const DeviceArray<uint32_t> of(sequences);
    const DeviceArray<uint32_t> ids(tables);
    const DeviceArray<float2> rotary(turns);
    RotateLatentParams params;
    params.in = made.data();
    params.in_dim = kInDim;
    params.query = query.data();
    params.query_heads = kHeads;
    params.latent = latent.data();
    params.rotary = rotary.data();
    params.rotary_dim = kDims;
    params.positions = at.data();
    params.sequences = of.data();
    params.kv = {keys.data(), nullptr, 1, kDim, type};
    params.tables = {ids.data(), 2};
    params.rows = rows;
    params.type = type;
    WEFT_CUDA_CHECK(RotateLatent(params, nullptr));
    const std::vector<float> got_query = query.Host();
    std::vector<float> got_keys = keys.Host();
    for (uint32_t row = 0; row < rows; ++row) {
      const float2* const turn = turns.data() + positions[row] * kDims / 2;
      for (uint32_t head = 0; head < kHeads; ++head) {
        const size_t number = size_t{row} * kHeads + head;
        const auto want = Turn(in.data() + number * kInDim, kInDim, kDims, turn);
        for (uint32_t i = 0; i < kDim; ++i) {
          const float x = got_query[number * kDim + i];
          if (i < kDim - kDims) {
            REQUIRE(std::isnan(x));
          } else {
            REQUIRE(Near(x, want[kInDim - kDim + i], type));
          }
        }
      }
      if (sequences[row] == kNoSequence) continue;
      const size_t block = tables[sequences[row] * 2 + positions[row] / kKvBlockTokens];
      const size_t token = block * kKvBlockTokens + positions[row] % kKvBlockTokens;
      const auto want = Turn(latents.data() + size_t{row} * kDim, kDim, kDims, turn);
      for (uint32_t i = 0; i < kDim; ++i) {
        float& x = got_keys[token * kDim + i];
        REQUIRE(Near(x, want[i], type));
        x = std::numeric_limits<float>::quiet_NaN();
      }
    }
    // Nothing else was written.
    CHECK(std::all_of(got_keys.begin(), got_keys.end(), [](float x) { return std::isnan(x); }));
  }
}

TEST_CASE("Products by head refuse sizes beyond their limits", "[cuda][elementwise]") {
  DeviceTensor any(DType::kFloat32, 8192);
  HeadProductParams params;
  params.in = params.weight = any.data();
  params.out = any.data();
  params.rows = params.heads = 1;
  params.in_dim = 2048;
  params.out_dim = params.outputs = 8;
  params.type = DType::kFloat32;
  for (const uint32_t inputs : {0u, 12u, 1032u}) {
    params.inputs = inputs;
    CHECK(HeadProduct(params, nullptr) == cudaErrorInvalidValue);
  }
  params.inputs = 16;
  params.in_dim = 8;
  CHECK(HeadProduct(params, nullptr) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace weft::kernels::cuda

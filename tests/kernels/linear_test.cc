// Linear: every weight type, activation type and instruction set against double precision, and the
// exact equality of one row and many.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/support.h"
#include "tests/support/runnable_isas.h"

namespace weft::kernels::cpu::testing {
namespace {

constexpr float kPoison = 12345.0f;

struct Shape {
  int64_t outputs;
  int64_t inputs;
};

// Odd sizes: partial tiles, one tile, odd tile counts, one block, inputs that are no multiple of 32
// (unquantised types only).
const Shape kShapes[] = {{16, 32},   {1, 32},    {17, 64},  {48, 96}, {33, 1536},
                         {192, 576}, {576, 192}, {40, 100}, {7, 20},  {65, 33}};

// The shape with as many blocks of 256 inputs as it has thirds of 96.
Shape InBlocks(WeightType type, const Shape& shape) {
  if (FormatOf(type).elements != 256) return shape;
  return {shape.outputs, (shape.inputs + 287) / 288 * 256};
}

std::vector<float> Run(const Kernels& kernels, const TestMatrix& matrix, const Activations& x,
                       int64_t tile_begin, int64_t tile_end) {
  std::vector<float> y(static_cast<size_t>(x.rows * (matrix.outputs + 3)), kPoison);
  kernels.linear(matrix.view(), x, tile_begin, tile_end, y.data(), matrix.outputs + 3);
  return y;
}

// The rounded activation that Linear is to multiply by.
float Rounded(ActivationType type, float x) {
  return type == ActivationType::kBf16 ? FloatOfBf16(Bf16Of(x)) : x;
}

void CheckAgainstDouble(Isa isa, WeightType type, ActivationType wanted, const Shape& shape,
                        int64_t rows) {
  const Kernels& kernels = KernelsFor(isa);
  const ActivationType activation = ActivationFor(type, wanted);
  const TestMatrix matrix = RandomMatrix(type, shape.outputs, shape.inputs, 7);
  const std::vector<float> x = RandomFloats(rows * shape.inputs, 11);
  const TestActivations prepared = Prepare(kernels, activation, x.data(), rows, shape.inputs);
  const std::vector<float> y = Run(kernels, matrix, prepared.view, 0, TileCount(shape.outputs));
  INFO(IsaName(isa) << " " << TypeName(type) << " rows " << rows << " outputs " << shape.outputs
                    << " inputs " << shape.inputs << " bf16 "
                    << (activation == ActivationType::kBf16));
  double worst = 0.0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = 0; n < shape.outputs; ++n) {
      double sum = 0.0;
      double size = 0.0;
      for (int64_t k = 0; k < shape.inputs; ++k) {
        const double product =
            static_cast<double>(matrix.At(n, k)) * Rounded(activation, x[r * shape.inputs + k]);
        sum += product;
        size += std::fabs(product);
      }
      const double error = std::fabs(y[r * (shape.outputs + 3) + n] - sum);
      worst = std::max(worst, error / (size + 1e-3));
    }
    for (int64_t n = shape.outputs; n < shape.outputs + 3; ++n) {
      REQUIRE(y[r * (shape.outputs + 3) + n] == kPoison);
    }
  }
  // Relative to the sum of magnitudes; a rounded weight or a lost term would be 1e-3 or more.
  CHECK(worst < 1e-6);
}

TEST_CASE("Linear agrees with double precision for all types, shapes and instruction sets",
          "[kernels][linear][long]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const WeightType type : AllWeightTypes()) {
      for (const ActivationType activation : {ActivationType::kF32, ActivationType::kBf16}) {
        for (const Shape& shape : kShapes) {
          if (IsQuantised(type) && shape.inputs % 32 != 0) continue;
          for (const int64_t rows : {1, 2, 3, 5, 8, 13}) {
            CheckAgainstDouble(isa, type, activation, InBlocks(type, shape), rows);
          }
        }
      }
    }
  }
}

void CheckRowsAreIndependent(Isa isa, WeightType type, ActivationType wanted, const Shape& shape) {
  constexpr int64_t kRows = 70;
  const Kernels& kernels = KernelsFor(isa);
  const ActivationType activation = ActivationFor(type, wanted);
  const TestMatrix matrix = RandomMatrix(type, shape.outputs, shape.inputs, 3);
  const std::vector<float> x = RandomFloats(kRows * shape.inputs, 5);
  const TestActivations prepared = Prepare(kernels, activation, x.data(), kRows, shape.inputs);
  const int64_t tiles = TileCount(shape.outputs);
  const int64_t stride = shape.outputs + 3;
  std::vector<float> alone;
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> row =
        Run(kernels, matrix, SliceRows(prepared.view, r, r + 1), 0, tiles);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  int64_t differing = 0;
  for (int64_t rows = 2; rows <= kRows; ++rows) {
    // Another part of the rows and another cut of the tiles each time.
    const int64_t first = (rows * 7) % (kRows - rows + 1);
    const int64_t cut = rows % (tiles + 1);
    const Activations part = SliceRows(prepared.view, first, first + rows);
    std::vector<float> y = Run(kernels, matrix, part, 0, cut);
    const std::vector<float> rest = Run(kernels, matrix, part, cut, tiles);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < shape.outputs; ++n) {
        const float got = n < cut * kTileOutputs ? y[r * stride + n] : rest[r * stride + n];
        differing += got != alone[(first + r) * stride + n];
      }
    }
  }
  INFO(IsaName(isa) << " " << TypeName(type) << " " << shape.outputs << " x " << shape.inputs);
  CHECK(differing == 0);
}

TEST_CASE("A row of Linear is bit-identical alone and among 1 to 70 rows, whatever the tile range",
          "[kernels][linear][num.row]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const WeightType type : AllWeightTypes()) {
      for (const ActivationType activation : {ActivationType::kF32, ActivationType::kBf16}) {
        CheckRowsAreIndependent(isa, type, activation, InBlocks(type, {83, 96}));
        CheckRowsAreIndependent(isa, type, activation, InBlocks(type, {48, 576}));
      }
    }
  }
}

TEST_CASE("Weights are never rounded: integer products come out exactly", "[kernels][linear]") {
  // x is one at one input and zero elsewhere, so y is that weight's column, exact in float32.
  for (const Isa isa : test::RunnableIsas()) {
    for (const WeightType type : {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kBf16,
                                  WeightType::kQ5_0, WeightType::kIq4Nl, WeightType::kMxfp4}) {
      const TestMatrix matrix = RandomMatrix(type, 37, 64, 23);
      const Kernels& kernels = KernelsFor(isa);
      for (const int64_t rows : {1, 40}) {
        for (int64_t k = 0; k < 64; ++k) {
          std::vector<float> x(static_cast<size_t>(rows * 64), 0.0f);
          for (int64_t r = 0; r < rows; ++r) x[r * 64 + k] = 1.0f;
          const TestActivations prepared =
              Prepare(kernels, ActivationType::kBf16, x.data(), rows, 64);
          const std::vector<float> y = Run(kernels, matrix, prepared.view, 0, 3);
          for (int64_t n = 0; n < 37; ++n) REQUIRE(y[(rows - 1) * 40 + n] == matrix.At(n, k));
        }
      }
    }
  }
}

TEST_CASE("Q8_0 multiplies every byte value, -128 and 0 included", "[kernels][linear]") {
  TestMatrix matrix = RandomMatrix(WeightType::kQ8_0, 16, 512, 1);
  // Row n holds the bytes in a rotated order, so that each byte meets each place of the layout.
  for (int64_t n = 0; n < 16; ++n) {
    for (int64_t k = 0; k < 512; ++k) {
      uint8_t* block = matrix.source.data() + n * 16 * 34 + k / 32 * 34;
      block[0] = 0x00;
      block[1] = 0x3C;  // d = 1
      block[2 + k % 32] = static_cast<uint8_t>(k + n * 16);
    }
  }
  Pack(matrix);
  for (const Isa isa : test::RunnableIsas()) {
    for (const int64_t rows : {1, 12}) {
      const std::vector<float> x = RandomFloats(rows * 512, 9);
      const TestActivations prepared =
          Prepare(KernelsFor(isa), ActivationType::kBf16, x.data(), rows, 512);
      const std::vector<float> y = Run(KernelsFor(isa), matrix, prepared.view, 0, 1);
      for (int64_t n = 0; n < 16; ++n) {
        double sum = 0.0;
        for (int64_t k = 0; k < 512; ++k) {
          sum += static_cast<double>(static_cast<int8_t>(k + n * 16)) * FloatOfBf16(Bf16Of(x[k]));
        }
        CHECK(y[n] == Approx(sum).margin(0.02));
      }
    }
  }
}

TEST_CASE("Activations are rounded to nearest even and padded, and block sums match on all sets",
          "[kernels][linear]") {
  const int64_t inputs = 100;
  const std::vector<float> x = RandomFloats(3 * inputs, 17);
  for (const Isa isa : test::RunnableIsas()) {
    for (const ActivationType type : {ActivationType::kF32, ActivationType::kBf16}) {
      const TestActivations prepared = Prepare(KernelsFor(isa), type, x.data(), 3, inputs);
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t b = 0; b < 4; ++b) {
          float lanes[32];
          for (int64_t i = 0; i < 32; ++i) {
            const int64_t k = b * 32 + i;
            lanes[i] = k < inputs ? Rounded(type, x[r * inputs + k]) : 0.0f;
          }
          for (int half = 16; half > 0; half /= 2) {
            for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
          }
          CHECK(prepared.view.block_sums[r * 4 + b] == lanes[0]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cpu::testing

#include "tests/kernels/support.h"

#include <cmath>
#include <cstdlib>

#include "tests/support/splitmix.h"

namespace weft::kernels::cpu::testing {

uint64_t Random::Next() {
  const uint64_t before = state_;
  state_ += test::kSplitmixStep;
  return test::Splitmix(before);
}

float Random::Uniform(float low, float high) {
  return low + (high - low) * static_cast<float>(Next() >> 40) * 0x1p-24f;
}

float Random::Normal() {
  float sum = 0.0f;
  for (int i = 0; i < 6; ++i) sum += Uniform(-1.0f, 1.0f);
  return sum * 0.70710678f;
}

Aligned::Aligned(int64_t bytes, int fill) : size_((bytes + 63) / 64 * 64) {
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, static_cast<size_t>(size_ + 64))));
  std::memset(data_.get(), fill, static_cast<size_t>(size_ + 64));
}

void Aligned::Free::operator()(uint8_t* p) const { std::free(p); }

const char* TypeName(WeightType type) { return FormatOf(type).name; }

std::vector<WeightType> AllWeightTypes() {
  std::vector<WeightType> types;
  for (const WeightFormat& format : kWeightFormats) types.push_back(format.type);
  return types;
}

float FloatOfHalf(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
  return (half & 0x8000) != 0 ? -value : value;
}

// Truncates; good enough to make test numbers.
uint16_t HalfOf(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(x), &exponent);
  if (fraction == 0.0f) return sign;
  const int stored = exponent + 14;
  if (stored <= 0) return static_cast<uint16_t>(sign | static_cast<int>(std::fabs(x) * 0x1p24f));
  const int mantissa = static_cast<int>(fraction * 2048.0f) & 1023;
  return static_cast<uint16_t>(sign | stored << 10 | mantissa);
}

uint16_t Bf16Of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits += 0x7FFF + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

float FloatOfBf16(uint16_t word) {
  const uint32_t bits = static_cast<uint32_t>(word) << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

float TestMatrix::At(int64_t n, int64_t k) const {
  const uint8_t* row = source.data() + n * SourceRowBytes(type, inputs);
  const auto half = [](const uint8_t* p) {
    return FloatOfHalf(static_cast<uint16_t>(p[0] | p[1] << 8));
  };
  const int64_t b = k / 32;
  const int64_t i = k % 32;
  const auto nibble = [&](const uint8_t* p) { return i < 16 ? p[i] & 15 : p[i - 16] >> 4; };
  float value = 0.0f;
  switch (type) {
    case WeightType::kF32:
      std::memcpy(&value, row + 4 * k, 4);
      return value;
    case WeightType::kF16:
      return half(row + 2 * k);
    case WeightType::kBf16:
      return FloatOfBf16(static_cast<uint16_t>(row[2 * k] | row[2 * k + 1] << 8));
    case WeightType::kQ8_0:
      return static_cast<float>(static_cast<int8_t>(row[34 * b + 2 + i])) * half(row + 34 * b);
    case WeightType::kQ4_0:
      return static_cast<float>(nibble(row + 18 * b + 2) - 8) * half(row + 18 * b);
    case WeightType::kQ4_1:
      value = static_cast<float>(nibble(row + 20 * b + 4)) * half(row + 20 * b);
      return value + half(row + 20 * b + 2);
    default:
      return values[static_cast<size_t>(n * inputs + k)];
  }
}

namespace {

void PutHalf(uint8_t* p, float x) {
  const uint16_t half = HalfOf(x);
  std::memcpy(p, &half, 2);
}

// Scales with which weights are a few tenths at most.
void RandomScales(WeightType type, Random& random, uint8_t* block) {
  const auto scale = [&](int at, float unit) {
    PutHalf(block + at, random.Uniform(-unit, 3.0f * unit));
  };
  switch (type) {
    case WeightType::kQ8_0:
    case WeightType::kIq4Nl:
      return scale(0, 0.001f);
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
      scale(0, 0.01f);
      return PutHalf(block + 2, random.Uniform(-0.2f, 0.1f));
    case WeightType::kQ2K:
      scale(80, 0.003f);
      return scale(82, 0.003f);
    case WeightType::kQ3K:
      return scale(108, 0.001f);
    case WeightType::kQ4K:
    case WeightType::kQ5K:
      scale(0, 0.0003f);
      return scale(2, 0.001f);
    case WeightType::kQ6K:
      return scale(208, 0.00005f);
    case WeightType::kIq4Xs:
      return scale(0, 0.00005f);
    case WeightType::kMxfp4:
      block[0] = static_cast<uint8_t>(118 + random.Below(5));
      return;
    default:
      return scale(0, 0.01f);
  }
}

}  // namespace

TestMatrix RandomMatrix(WeightType type, int64_t outputs, int64_t inputs, uint64_t seed) {
  TestMatrix matrix{type, outputs, inputs, {}, Aligned(PackedBytes(type, outputs, inputs), 0xFF),
                    {}};
  const int64_t row_bytes = SourceRowBytes(type, inputs);
  matrix.source.resize(static_cast<size_t>(outputs * row_bytes));
  Random random(seed);
  for (int64_t n = 0; n < outputs; ++n) {
    uint8_t* row = matrix.source.data() + n * row_bytes;
    if (IsQuantised(type)) {
      for (int64_t at = 0; at < row_bytes; ++at) row[at] = static_cast<uint8_t>(random.Next());
      for (uint8_t* block = row; block < row + row_bytes; block += FormatOf(type).bytes) {
        RandomScales(type, random, block);
      }
      continue;
    }
    for (int64_t k = 0; k < inputs; ++k) {
      const float w = random.Uniform(-0.2f, 0.2f);
      if (type == WeightType::kF32) std::memcpy(row + 4 * k, &w, 4);
      if (type == WeightType::kF16) PutHalf(row + 2 * k, w);
      const uint16_t word = Bf16Of(w);
      if (type == WeightType::kBf16) std::memcpy(row + 2 * k, &word, 2);
    }
  }
  Pack(matrix);
  return matrix;
}

void Pack(TestMatrix& matrix) {
  const int64_t row_bytes = SourceRowBytes(matrix.type, matrix.inputs);
  matrix.values.resize(static_cast<size_t>(matrix.outputs * matrix.inputs));
  for (int64_t n = 0; n < matrix.outputs; ++n) {
    UnpackToFloat(matrix.type, matrix.source.data() + n * row_bytes, matrix.inputs,
                  matrix.values.data() + n * matrix.inputs);
  }
  const int64_t tile_bytes = PackedTileBytes(matrix.type, matrix.inputs);
  for (int64_t tile = 0; tile < TileCount(matrix.outputs); ++tile) {
    const uint8_t* rows[kTileOutputs];
    for (int64_t n = 0; n < kTileOutputs; ++n) {
      const int64_t output = tile * kTileOutputs + n;
      rows[n] = output < matrix.outputs ? matrix.source.data() + output * row_bytes : nullptr;
    }
    PackTile(matrix.type, rows, matrix.inputs, matrix.packed.bytes() + tile * tile_bytes);
  }
}

TestActivations Prepare(const Kernels& kernels, ActivationType type, const float* x, int64_t rows,
                        int64_t inputs) {
  TestActivations result{{},
                         Aligned(rows * ActivationRowBytes(inputs), 0xFF),
                         Aligned(rows * BlockSumCount(inputs) * 4, 0xFF)};
  result.view = Activations{type, rows, inputs, result.values.bytes(), result.sums.as<float>()};
  kernels.prepare_activations(x, inputs, 0, rows, result.view);
  return result;
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.Normal();
  return values;
}

}  // namespace weft::kernels::cpu::testing

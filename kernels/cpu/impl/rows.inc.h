// Norm, rotary, SiLU, residual add, conversions (contracts in kernels.h).

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// Four accumulators by turns, so that the adds do not wait for each other.
inline float SumOfSquares(const float* x, int64_t count) {
  Floats sums[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    for (int j = 0; j < 4; ++j) {
      const Floats v = Load(x + i + kLanes * j);
      sums[j] = MulAdd(v, v, sums[j]);
    }
  }
  for (int j = 0; i < count; i += kLanes, ++j) {
    const Floats v = LoadN(x + i, count - i);
    sums[j] = MulAdd(v, v, sums[j]);
  }
  return SumLanes(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
}

void RmsNorm(const float* x, int64_t x_stride, const float* weight, float epsilon, int64_t count,
             int64_t rows, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r, x += x_stride, y += y_stride) {
    const float mean = SumOfSquares(x, count) / static_cast<float>(count);
    const Floats scale = Set(1.0f / ScalarSqrt(mean + epsilon));
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t n = count - i;
      StoreN(y + i, Mul(Mul(LoadN(x + i, n), scale), LoadN(weight + i, n)), n);
    }
  }
}

void Rotary(float* x, int64_t heads, int64_t head_dim, int64_t dims, const float* cosines,
            const float* sines) {
  const int64_t half = dims / 2;
  for (int64_t h = 0; h < heads; ++h, x += head_dim) {
    for (int64_t i = 0; i < half; i += kLanes) {
      const int64_t n = half - i;
      const Floats c = LoadN(cosines + i, n);
      const Floats s = LoadN(sines + i, n);
      const Floats a = LoadN(x + i, n);
      const Floats b = LoadN(x + half + i, n);
      StoreN(x + i, Sub(Mul(a, c), Mul(b, s)), n);
      StoreN(x + half + i, Add(Mul(b, c), Mul(a, s)), n);
    }
  }
}

void SiluMultiply(const float* gate, const float* up, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Floats g = LoadN(gate + i, n);
    const Floats sigmoid_inverse = Add(Set(1.0f), Exp(Sub(Zero(), g)));
    StoreN(out + i, Mul(Div(g, sigmoid_inverse), LoadN(up + i, n)), n);
  }
}

void AddRows(const float* a, const float* b, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    StoreN(out + i, Add(LoadN(a + i, n), LoadN(b + i, n)), n);
  }
}

void ToBf16(const float* x, int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) StoreWords(out + i, RoundToBf16(Load(x + i)));
  if (i == count) return;
  uint16_t tail[kLanes];
  StoreWords(tail, RoundToBf16(LoadN(x + i, count - i)));
  for (int64_t j = i; j < count; ++j) out[j] = tail[j - i];
}

void FromBf16(const uint16_t* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i < kLanes ? count - i : kLanes;
    if (n == kLanes) {
      Store(out + i, AsFloats(ShiftLeft<16>(LoadWords(x + i))));
      continue;
    }
    uint16_t tail[kLanes] = {};
    for (int64_t j = 0; j < n; ++j) tail[j] = x[i + j];
    StoreN(out + i, AsFloats(ShiftLeft<16>(LoadWords(tail))), n);
  }
}

void ExpRow(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    StoreN(out + i, Exp(LoadN(x + i, count - i)), count - i);
  }
}

void LogRow(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    StoreN(out + i, Log(LoadN(x + i, count - i)), count - i);
  }
}

}  // namespace
}  // namespace weft::kernels::cpu

// Norms, rotary, activations, residual add, conversions (contracts in kernels.h).

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

// The same of x - mean.
inline float SumOfDeviations(const float* x, int64_t count, float mean) {
  Floats sum = Zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats v = Sub(Load(x + i), Set(mean));
    sum = MulAdd(v, v, sum);
  }
  // The lanes behind the end must not count the mean.
  if (i < count) {
    float tail[kLanes] = {};
    for (int64_t j = i; j < count; ++j) tail[j - i] = x[j] - mean;
    const Floats v = Load(tail);
    sum = MulAdd(v, v, sum);
  }
  return SumLanes(sum);
}

inline float SumOfRow(const float* x, int64_t count) {
  Floats sum = Zero();
  for (int64_t i = 0; i < count; i += kLanes) sum = Add(sum, LoadN(x + i, count - i));
  return SumLanes(sum);
}

void LayerNorm(const float* x, int64_t x_stride, const float* weight, const float* bias,
               float epsilon, int64_t count, int64_t rows, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r, x += x_stride, y += y_stride) {
    const float mean = SumOfRow(x, count) / static_cast<float>(count);
    const float variance = SumOfDeviations(x, count, mean) / static_cast<float>(count);
    const Floats scale = Set(1.0f / ScalarSqrt(variance + epsilon));
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t n = count - i;
      const Floats v = Mul(Mul(Sub(LoadN(x + i, n), Set(mean)), scale), LoadN(weight + i, n));
      StoreN(y + i, bias == nullptr ? v : Add(v, LoadN(bias + i, n)), n);
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

// x / (1 + exp(-of)); where exp overflows, the quotient is zero.
inline Floats TimesSigmoid(const Floats& x, const Floats& of) {
  return Div(x, Add(Set(1.0f), Exp(Sub(Zero(), of))));
}

void ClampedSwiglu(const float* gate, const float* up, float limit, int64_t count, float* out) {
  const Floats most = Set(limit);
  const Floats least = Set(-limit);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    Floats g = LoadN(gate + i, n);
    Floats u = LoadN(up + i, n);
    g = Select(Greater(g, most), most, g);
    u = Select(Greater(u, most), most, u);
    u = Select(Greater(least, u), least, u);
    StoreN(out + i, Mul(TimesSigmoid(g, Mul(Set(1.702f), g)), Add(u, Set(1.0f))), n);
  }
}

// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5e-7.
inline Floats Erf(const Floats& x) {
  const auto negative = Greater(Zero(), x);
  const Floats size = Select(negative, Sub(Zero(), x), x);
  const Floats t = Div(Set(1.0f), Fma(size, Set(0.3275911f), Set(1.0f)));
  Floats y = Set(1.061405429f);
  y = Fma(y, t, Set(-1.453152027f));
  y = Fma(y, t, Set(1.421413741f));
  y = Fma(y, t, Set(-0.284496736f));
  y = Fma(y, t, Set(0.254829592f));
  y = Sub(Set(1.0f), Mul(Mul(y, t), Exp(Sub(Zero(), Mul(size, size)))));
  return Select(negative, Sub(Zero(), y), y);
}

inline Floats Activated(Activation function, const Floats& x) {
  switch (function) {
    case Activation::kSilu:
      return TimesSigmoid(x, x);
    case Activation::kGeluTanh: {
      // (1 + tanh u) / 2 is the sigmoid of 2 u, without the cancellation at negative u.
      const Floats cubed = Mul(Mul(x, x), x);
      return TimesSigmoid(x, Mul(Set(1.5957691216057308f), Fma(cubed, Set(0.044715f), x)));
    }
    case Activation::kGeluErf:
      return Mul(Mul(Set(0.5f), x), Add(Set(1.0f), Erf(Mul(x, Set(0.70710678118654752f)))));
    case Activation::kRelu:
      break;
  }
  return Select(Greater(Zero(), x), Zero(), x);
}

void Activate(Activation function, const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    StoreN(out + i, Activated(function, LoadN(x + i, count - i)), count - i);
  }
}

void MultiplyRows(const float* a, const float* b, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    StoreN(out + i, Mul(LoadN(a + i, n), LoadN(b + i, n)), n);
  }
}

void Clip(const float* x, float limit, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    Floats v = LoadN(x + i, n);
    v = Select(Greater(v, Set(limit)), Set(limit), v);
    v = Select(Greater(Set(-limit), v), Set(-limit), v);
    StoreN(out + i, v, n);
  }
}

void SoftCap(const float* x, float cap, int64_t count, float* out) {
  const Floats inverse = Set(1.0f / cap);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    StoreN(out + i, Mul(Tanh(Mul(LoadN(x + i, n), inverse)), Set(cap)), n);
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

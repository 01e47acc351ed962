// Norm, rotary, SiLU, add, conversions, exp and log against double precision; equal bits where
// kernels.h promises them.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/philox.h"
#include "tests/kernels/support.h"
#include "tests/support/runnable_isas.h"

namespace weft::kernels::cpu::testing {
namespace {

constexpr float kPoison = 12345.0f;

TEST_CASE("RmsNorm agrees with double precision, and rows are independent", "[kernels][rows]") {
  for (const Isa isa : test::RunnableIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (const int64_t count : {1, 7, 16, 33, 64, 576, 579}) {
      const int64_t rows = 5;
      const std::vector<float> x = RandomFloats(rows * count, 3);
      const std::vector<float> weight = RandomFloats(count, 4);
      std::vector<float> y(static_cast<size_t>(rows * (count + 2)), kPoison);
      kernels.rms_norm(x.data(), count, weight.data(), 1e-5f, count, rows, y.data(), count + 2);
      for (int64_t r = 0; r < rows; ++r) {
        double squares = 0.0;
        for (int64_t i = 0; i < count; ++i)
          squares += static_cast<double>(x[r * count + i]) * x[r * count + i];
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
        for (int64_t i = 0; i < count; ++i) {
          const double expected = x[r * count + i] * scale * weight[i];
          REQUIRE(y[r * (count + 2) + i] == Approx(expected).epsilon(1e-6).margin(1e-7));
        }
        REQUIRE(y[r * (count + 2) + count] == kPoison);
        std::vector<float> alone(static_cast<size_t>(count));
        kernels.rms_norm(x.data() + r * count, count, weight.data(), 1e-5f, count, 1, alone.data(),
                         count);
        REQUIRE(std::memcmp(alone.data(), &y[r * (count + 2)], alone.size() * 4) == 0);
      }
    }
  }
}

TEST_CASE("Rotary rotates halves and leaves the elements behind them", "[kernels][rows]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const int64_t head_dim : {20, 64, 80}) {
      for (const int64_t dims : {head_dim, head_dim / 2 / 2 * 2}) {
        const std::vector<float> x = RandomFloats(3 * head_dim + 1, 8);
        std::vector<float> y = x;
        std::vector<float> c(static_cast<size_t>(dims / 2)), s(c.size());
        for (size_t i = 0; i < c.size(); ++i) {
          c[i] = std::cos(0.1f * static_cast<float>(i));
          s[i] = std::sin(0.1f * static_cast<float>(i));
        }
        KernelsFor(isa).rotary(y.data(), 3, head_dim, dims, c.data(), s.data());
        for (int64_t h = 0; h < 3; ++h) {
          const float* a = x.data() + h * head_dim;
          const float* b = y.data() + h * head_dim;
          for (int64_t i = 0; i < dims / 2; ++i) {
            CHECK(b[i] == Approx(a[i] * c[i] - a[i + dims / 2] * s[i]).margin(1e-6));
            CHECK(b[i + dims / 2] == Approx(a[i + dims / 2] * c[i] + a[i] * s[i]).margin(1e-6));
          }
          for (int64_t i = dims; i < head_dim; ++i) CHECK(b[i] == a[i]);
        }
        CHECK(y.back() == x.back());
      }
    }
  }
}

TEST_CASE("SiLU, add and exp agree with double precision, in place too", "[kernels][rows]") {
  for (const Isa isa : test::RunnableIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (const int64_t count : {1, 15, 16, 17, 1536, 1541}) {
      std::vector<float> gate = RandomFloats(count, 1);
      for (float& g : gate) g *= 20.0f;
      const std::vector<float> up = RandomFloats(count, 2);
      std::vector<float> out(static_cast<size_t>(count) + 1, kPoison);
      kernels.silu_multiply(gate.data(), up.data(), count, out.data());
      for (int64_t i = 0; i < count; ++i) {
        const double g = gate[i];
        CHECK(out[i] == Approx(g / (1.0 + std::exp(-g)) * up[i]).epsilon(1e-6).margin(1e-30));
      }
      CHECK(out[count] == kPoison);
      std::vector<float> in_place = gate;
      kernels.silu_multiply(in_place.data(), up.data(), count, in_place.data());
      CHECK(std::memcmp(in_place.data(), out.data(), in_place.size() * 4) == 0);
      kernels.add(gate.data(), up.data(), count, out.data());
      for (int64_t i = 0; i < count; ++i) CHECK(out[i] == gate[i] + up[i]);
      CHECK(out[count] == kPoison);
    }
  }
}

TEST_CASE("The clamped SwiGLU agrees with double precision, in place too, and NaN stays NaN",
          "[kernels][rows]") {
  constexpr double kLimit = 7;
  for (const Isa isa : test::RunnableIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (const int64_t count : {1, 16, 17, 1541}) {
      std::vector<float> gate = RandomFloats(count, 1);
      std::vector<float> up = RandomFloats(count, 2);
      for (float& x : gate) x *= 20.0f;
      for (float& x : up) x *= 20.0f;
      std::vector<float> out(static_cast<size_t>(count) + 1, kPoison);
      kernels.clamped_swiglu(gate.data(), up.data(), kLimit, count, out.data());
      for (int64_t i = 0; i < count; ++i) {
        const double g = std::min<double>(gate[i], kLimit);
        const double u = std::clamp<double>(up[i], -kLimit, kLimit);
        CHECK(out[i] ==
              Approx(g / (1 + std::exp(-1.702 * g)) * (u + 1)).epsilon(2e-6).margin(1e-6));
      }
      CHECK(out[count] == kPoison);
      up[0] = NAN;
      kernels.clamped_swiglu(gate.data(), up.data(), kLimit, count, gate.data());
      CHECK(std::isnan(gate[0]));
      for (int64_t i = 1; i < count; ++i) CHECK(gate[i] == out[i]);
    }
  }
}

double Exactly(Activation function, double x) {
  switch (function) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kRelu:
      break;
  }
  return std::max(x, 0.0);
}

TEST_CASE("Activations agree with double precision, in place too, and NaN stays NaN",
          "[kernels][rows]") {
  for (const Isa isa : test::RunnableIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (const Activation function :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu}) {
      for (const int64_t count : {1, 15, 16, 17, 1541}) {
        std::vector<float> x = RandomFloats(count, 1);
        for (float& v : x) v *= 20.0f;
        x.push_back(kPoison);
        std::vector<float> y = x;
        kernels.activate(function, x.data(), count, y.data());
        for (int64_t i = 0; i < count; ++i) {
          const double want = Exactly(function, x[i]);
          CHECK(y[i] == Approx(want).epsilon(2e-6).margin(3e-7 * std::abs(x[i])));
        }
        CHECK(y[count] == kPoison);
        kernels.activate(function, x.data(), count, x.data());
        CHECK(std::memcmp(x.data(), y.data(), x.size() * 4) == 0);
      }
      const float ends[] = {NAN, 1e30f, -1e30f};
      float out[3];
      kernels.activate(function, ends, 3, out);
      CHECK(std::isnan(out[0]));
      CHECK(out[1] == 1e30f);
      CHECK(out[2] == 0.0f);
    }
  }
}

TEST_CASE("LayerNorm agrees with double precision, with and without bias, in place too",
          "[kernels][rows]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const int64_t count : {1, 7, 16, 33, 577}) {
      std::vector<float> x = RandomFloats(3 * (count + 1), 4);
      // A mean that is large beside the deviation.
      for (float& v : x) v = 0.25f * v + 3.0f;
      const std::vector<float> weight = RandomFloats(count, 5);
      const std::vector<float> bias = RandomFloats(count, 6);
      for (const float* const added : {bias.data(), static_cast<const float*>(nullptr)}) {
        std::vector<float> y = x;
        KernelsFor(isa).layer_norm(y.data(), count + 1, weight.data(), added, 1e-5f, count, 3,
                                   y.data(), count + 1);
        for (int64_t r = 0; r < 3; ++r) {
          const float* const row = x.data() + r * (count + 1);
          double mean = 0;
          for (int64_t i = 0; i < count; ++i) mean += row[i] / static_cast<double>(count);
          double variance = 0;
          for (int64_t i = 0; i < count; ++i) {
            variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(count);
          }
          for (int64_t i = 0; i < count; ++i) {
            const double want = (row[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] +
                                (added != nullptr ? added[i] : 0.0f);
            CHECK(y[r * (count + 1) + i] == Approx(want).epsilon(1e-5).margin(2e-4));
          }
          CHECK(y[r * (count + 1) + count] == row[count]);
        }
      }
    }
  }
}

TEST_CASE("Clip cuts at both ends and lets NaN through", "[kernels][rows]") {
  for (const Isa isa : test::RunnableIsas()) {
    std::vector<float> x = {-3.0f, -2.0f, 0.5f, 2.0f, 9.0f, NAN, INFINITY, kPoison};
    KernelsFor(isa).clip(x.data(), 2.0f, 7, x.data());
    CHECK(std::isnan(x[5]));
    x[5] = 0.0f;
    CHECK(x == std::vector<float>{-2.0f, -2.0f, 0.5f, 2.0f, 2.0f, 0.0f, 2.0f, kPoison});
  }
}

TEST_CASE("Exp is within 2 ulp, right at its ends, and the same bits on every instruction set",
          "[kernels][rows]") {
  std::vector<float> x = {0.0f,    -0.0f, -INFINITY, INFINITY, NAN,   -87.3f, -87.4f,
                          -104.0f, 88.7f, 88.72283f, 89.0f,    1e30f, -1e30f, 1e-30f};
  Random random(5);
  for (int i = 0; i < 100000; ++i) x.push_back(random.Uniform(-88.0f, 88.0f));
  std::vector<float> first(x.size());
  KernelsFor(Isa::kPortable).exp(x.data(), static_cast<int64_t>(x.size()), first.data());
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    if (std::isnan(x[i])) {
      CHECK(std::isnan(first[i]));
    } else if (exact < 0x1p-125) {
      CHECK(first[i] <= 0x1p-124f);
    } else if (exact > 3.4028234e38) {
      CHECK(std::isinf(first[i]));
    } else {
      const float nearest = static_cast<float>(exact);
      worst =
          std::max(worst, std::fabs(first[i] - exact) / (nearest - std::nextafter(nearest, 0.0f)));
    }
  }
  INFO("worst error in ulp: " << worst);
  CHECK(worst < 2.0);
  CHECK(first[0] == 1.0f);
  CHECK(first[2] == 0.0f);
  for (const Isa isa : test::RunnableIsas()) {
    std::vector<float> y(x.size());
    KernelsFor(isa).exp(x.data(), static_cast<int64_t>(x.size()), y.data());
    INFO(IsaName(isa));
    CHECK(std::memcmp(y.data() + 5, first.data() + 5, (y.size() - 5) * 4) == 0);
    CHECK(std::isnan(y[4]));
  }
}

TEST_CASE("Log has the bits of the scalar polynomial on every instruction set", "[kernels][rows]") {
  Random random(6);
  std::vector<float> x(50003);
  for (float& value : x) {
    value = std::ldexp(random.Uniform(0.5f, 1.0f), static_cast<int>(random.Below(200)) - 100);
  }
  for (const Isa isa : test::RunnableIsas()) {
    std::vector<float> y(x.size());
    KernelsFor(isa).log(x.data(), static_cast<int64_t>(x.size()), y.data());
    int64_t differing = 0;
    for (size_t i = 0; i < x.size(); ++i) differing += y[i] != PolyLog(x[i]);
    CHECK(differing == 0);
  }
}

TEST_CASE("bf16 conversion rounds to nearest even and keeps NaN and infinity", "[kernels][rows]") {
  std::vector<float> x = {1.0f, 1.00390625f,     1.01171875f, -INFINITY, INFINITY,
                          NAN,  0x1.fffffep127f, 0x1p-130f,   -0.0f};
  Random random(12);
  for (int i = 0; i < 1000; ++i) x.push_back(random.Normal());
  for (const Isa isa : test::RunnableIsas()) {
    std::vector<uint16_t> words(x.size() + 1, 0x1234);
    KernelsFor(isa).to_bf16(x.data(), static_cast<int64_t>(x.size()), words.data());
    std::vector<float> back(x.size() + 1, kPoison);
    KernelsFor(isa).from_bf16(words.data(), static_cast<int64_t>(x.size()), back.data());
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        CHECK(std::isnan(back[i]));
      } else {
        CHECK(words[i] == Bf16Of(x[i]));
        CHECK(back[i] == FloatOfBf16(words[i]));
      }
    }
    CHECK(words.back() == 0x1234);
    CHECK(back.back() == kPoison);
  }
}

}  // namespace
}  // namespace weft::kernels::cpu::testing

// Random numbers of the sampler: known answers of Philox4x32-10, the logarithm's accuracy, and bit
// equality of every instruction set with the scalar header (invariant rng.key).

#include "kernels/philox.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/support.h"
#include "tests/support/runnable_isas.h"

namespace weft::kernels::cpu::testing {
namespace {

// Known-answer tests published with Random123 (kat_vectors, philox4x32 10).
TEST_CASE("Philox4x32-10 gives the published known answers", "[kernels][philox]") {
  const PhiloxBlock zeros = Philox4x32(0, 0, 0, 0, 0);
  CHECK(zeros.lane[0] == 0x6627e8d5u);
  CHECK(zeros.lane[1] == 0xe169c58du);
  CHECK(zeros.lane[2] == 0xbc57ac4cu);
  CHECK(zeros.lane[3] == 0x9b00dbd8u);
  const uint32_t ones = 0xFFFFFFFFu;
  const PhiloxBlock full = Philox4x32(~0ull, ones, ones, ones, ones);
  CHECK(full.lane[0] == 0x408f276du);
  CHECK(full.lane[1] == 0x41c83b0eu);
  CHECK(full.lane[2] == 0xa20bc7c6u);
  CHECK(full.lane[3] == 0x6d5451fdu);
  const PhiloxBlock pi =
      Philox4x32(0x299f31d0a4093822ull, 0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u);
  CHECK(pi.lane[0] == 0xd16cfe09u);
  CHECK(pi.lane[1] == 0x94fdccebu);
  CHECK(pi.lane[2] == 0x5001e420u);
  CHECK(pi.lane[3] == 0x24126ea1u);
}

TEST_CASE("Uniform numbers lie strictly between 0 and 1 and the noise is finite",
          "[kernels][philox]") {
  CHECK(PhiloxUniform(0) == 0x1p-24f);
  CHECK(PhiloxUniform(0xFFFFFFFFu) == 1.0f - 0x1p-24f);
  CHECK(std::isfinite(GumbelNoise(0)));
  CHECK(std::isfinite(GumbelNoise(0xFFFFFFFFu)));
}

TEST_CASE("PolyLog is within 2 ulp of the logarithm", "[kernels][philox]") {
  Random random(31);
  double worst = 0.0;
  for (int i = 0; i < 200000; ++i) {
    float x = random.Uniform(0.0f, 1.0f) + 0x1p-24f;
    if (i % 3 == 0) x = PhiloxUniform(static_cast<uint32_t>(random.Next()));
    if (i % 3 == 1) x *= 20.0f;
    const double exact = std::log(static_cast<double>(x));
    const float nearest = static_cast<float>(exact);
    const double ulp = std::nextafter(std::fabs(nearest), INFINITY) - std::fabs(nearest);
    worst = std::max(worst, std::fabs(PolyLog(x) - exact) / ulp);
  }
  INFO("worst error in ulp: " << worst);
  CHECK(worst < 2.0);
}

TEST_CASE("Gumbel noise of a row has the bits of the scalar formula on every instruction set",
          "[kernels][philox]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const uint32_t first : {0u, 1u, 2u, 3u, 49150u, 16384u, 4294967000u}) {
      for (const int64_t count : {1, 3, 16, 64, 65, 250}) {
        std::vector<float> noise(static_cast<size_t>(count) + 1, 777.0f);
        KernelsFor(isa).gumbel_noise(first, count, 0x0123456789ABCDEFull, 77, noise.data());
        for (int64_t i = 0; i < count; ++i) {
          const uint32_t token = first + static_cast<uint32_t>(i);
          REQUIRE(noise[i] == TokenNoise(0x0123456789ABCDEFull, 77, token));
        }
        CHECK(noise[count] == 777.0f);
      }
    }
  }
}

TEST_CASE("The noise follows the Gumbel distribution", "[kernels][philox]") {
  // Mean 0.5772 and variance pi^2 / 6; 40,000 draws give standard errors of 0.0064 and 0.02.
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kCount = 40000;
  for (uint32_t i = 0; i < kCount; ++i) {
    const double x = TokenNoise(99, i / 100, i % 100);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kCount;
  CHECK(mean == Approx(0.5772).margin(0.03));
  CHECK(squares / kCount - mean * mean == Approx(1.6449).margin(0.1));
}

}  // namespace
}  // namespace weft::kernels::cpu::testing

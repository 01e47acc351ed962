#include "shard/device/cpu/expert_routes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "kernels/cpu/kernels.h"

namespace weft::shard {
namespace {

const kernels::cpu::Kernels& Portable() {
  return kernels::cpu::KernelsFor(kernels::cpu::Isa::kPortable);
}

ExpertsSpec Spec(uint32_t count, uint32_t per_token, bool renormalised) {
  ExpertsSpec spec;
  spec.count = count;
  spec.per_token = per_token;
  spec.renormalised = renormalised;
  return spec;
}

TEST_CASE("A row takes the largest shares, of equal ones the lower numbers", "[shard][experts]") {
  ExpertRoutes shares(Spec(4, 2, false), 1);
  std::vector<float> numbers = {0.0f, std::log(2.0f), std::log(2.0f), std::log(2.0f)};
  shares.Choose(Portable(), 0, numbers.data());
  REQUIRE(shares.choices(0).size() == 2);
  CHECK(shares.choices(0)[0].expert == 1);
  CHECK(shares.choices(0)[1].expert == 2);
  CHECK(shares.choices(0)[0].weight == Approx(2.0 / 7));
  ExpertRoutes renormalised(Spec(4, 2, true), 1);
  numbers = {0.0f, std::log(3.0f), -50.0f, -40.0f};
  renormalised.Choose(Portable(), 0, numbers.data());
  CHECK(renormalised.choices(0)[0].weight == Approx(0.25));
  CHECK(renormalised.choices(0)[1].weight == Approx(0.75));
}

TEST_CASE("Choices are sorted by expert, then by row", "[shard][experts]") {
  constexpr uint32_t kRows = 37;
  constexpr uint32_t kExperts = 9;
  constexpr uint32_t kPerToken = 3;
  ExpertRoutes routes(Spec(kExperts, kPerToken, true), kRows);
  constexpr uint64_t kSeed = 5;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  for (uint32_t row = 0; row < kRows; ++row) {
    std::vector<float> numbers(kExperts);
    for (float& x : numbers) x = normal(random);
    // Nobody takes expert 4.
    numbers[4] = -100.0f;
    routes.Choose(Portable(), row, numbers.data());
  }
  routes.Sort(kRows);
  REQUIRE(routes.rows().size() == kRows * kPerToken);
  std::vector<bool> seen(kRows * kPerToken);
  for (uint32_t row = 0; row < kRows; ++row) {
    for (const ExpertRoutes::Choice& choice : routes.choices(row)) {
      CHECK(routes.rows()[choice.place] == row);
      CHECK(!seen[choice.place]);
      seen[choice.place] = true;
    }
  }
  uint32_t place = 0;
  for (const ExpertRoutes::Group& group : routes.groups()) {
    CHECK(group.expert != 4);
    CHECK(group.begin == place);
    CHECK(group.end > group.begin);
    for (uint32_t i = group.begin + 1; i < group.end; ++i) {
      CHECK(routes.rows()[i - 1] < routes.rows()[i]);
    }
    place = group.end;
  }
  CHECK(place == kRows * kPerToken);
}

TEST_CASE("Numbers that are none make weights that are none", "[shard][experts]") {
  for (const float bad : {NAN, INFINITY}) {
    ExpertRoutes routes(Spec(5, 2, true), 1);
    std::vector<float> numbers = {1.0f, 2.0f, bad, 0.0f, 1.0f};
    routes.Choose(Portable(), 0, numbers.data());
    for (const ExpertRoutes::Choice& choice : routes.choices(0)) CHECK(std::isnan(choice.weight));
    routes.Sort(1);
    CHECK(routes.groups().size() == 2);
  }
}

}  // namespace
}  // namespace weft::shard

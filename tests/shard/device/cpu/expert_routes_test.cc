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

TEST_CASE("Sigmoids with a bias for the choice alone are weights without it", "[shard][experts]") {
  ExpertsSpec spec = Spec(4, 2, false);
  spec.score = ExpertScore::kSigmoid;
  spec.choice_bias = true;
  spec.weight_scale = 3.0f;
  const float bias[] = {0.0f, 0.9f, 0.0f, 0.0f};
  const auto logit = [](double share) { return static_cast<float>(std::log(share / (1 - share))); };
  const std::vector<float> row = {logit(0.5), logit(0.1), logit(0.7), logit(0.6)};
  ExpertRoutes shares(spec, 1);
  std::vector<float> numbers = row;
  shares.Choose(Portable(), 0, numbers.data(), bias);
  CHECK(shares.choices(0)[0].expert == 1);
  CHECK(shares.choices(0)[0].weight == Approx(0.3));
  CHECK(shares.choices(0)[1].expert == 2);
  CHECK(shares.choices(0)[1].weight == Approx(2.1));
  spec.renormalised = true;
  ExpertRoutes renormalised(spec, 1);
  numbers = row;
  renormalised.Choose(Portable(), 0, numbers.data(), bias);
  CHECK(renormalised.choices(0)[0].weight == Approx(3 * 0.1 / 0.8));
  CHECK(renormalised.choices(0)[1].weight == Approx(3 * 0.7 / 0.8));
}

TEST_CASE("Experts come from the groups of the best, or of the best two", "[shard][experts]") {
  ExpertsSpec spec = Spec(9, 2, false);
  spec.groups = 3;
  spec.groups_taken = 1;
  const auto chosen = [&spec](std::vector<float> numbers) {
    ExpertRoutes routes(spec, 1);
    routes.Choose(Portable(), 0, numbers.data());
    return std::vector<uint32_t>{routes.choices(0)[0].expert, routes.choices(0)[1].expert};
  };
  const std::vector<float> one_best = {0, 9, 1, 5, 6, 7, 0, 0, 0};
  CHECK(chosen(one_best) == std::vector<uint32_t>{1, 2});
  // Shares are of all experts, hidden ones too.
  ExpertRoutes routes(spec, 1);
  std::vector<float> numbers = one_best;
  routes.Choose(Portable(), 0, numbers.data());
  double all = 0;
  for (const float x : one_best) all += std::exp(x - 9.0);
  CHECK(routes.choices(0)[0].weight == Approx(1 / all));
  spec.group_best = 2;
  CHECK(chosen(one_best) == std::vector<uint32_t>{4, 5});
  // Of equal groups the lower.
  CHECK(chosen({1, 2, 3, 3, 2, 1, 0, 2, 3}) == std::vector<uint32_t>{1, 2});
  spec.groups_taken = 2;
  CHECK(chosen({0, 0, 8, 1, 1, 1, 0, 7, 1}) == std::vector<uint32_t>{2, 7});
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

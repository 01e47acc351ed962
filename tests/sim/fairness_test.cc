// Shares and waiting times of tenants and priorities over simulated minutes.

#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <vector>

#include "tests/sim/traffic.h"

namespace weft::router {
namespace {

constexpr int64_t kSecond = 1'000'000;

SchedulerConfig Config() {
  SchedulerConfig config;
  config.running_max = 64;
  config.step_tokens_max = 512;
  config.block_tokens = 16;
  config.context_tokens_max = 4096;
  config.eos_ids = {0};
  config.hash_key[0] = 1;
  return config;
}

double Share(const Traffic& traffic, size_t load, size_t loads) {
  uint64_t all = 0;
  for (size_t i = 0; i < loads; ++i) all += traffic.report(i).tokens;
  return static_cast<double>(traffic.report(load).tokens) / static_cast<double>(all);
}

std::vector<Load> OneToThree() {
  std::vector<Load> loads(2);
  loads[0].tenant = 1;
  loads[0].weight = 1;
  loads[0].backlog = 50;
  loads[1].tenant = 2;
  loads[1].weight = 3;
  loads[1].backlog = 50;
  // Not the same work in each request.
  loads[1].prompt_max = 900;
  loads[1].output_max = 60;
  return loads;
}

TEST_CASE("Two tenants with a backlog share the work as their weights say", "[sim][fairness]") {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Traffic traffic(Config(), 8192, {}, OneToThree(), seed);
    traffic.Run(600 * kSecond);
    const double share = Share(traffic, 0, 2);
    std::cout << "seed " << seed << ": weight 1 of 4 has " << share << " of "
              << traffic.report(0).tokens + traffic.report(1).tokens << " tokens\n";
    CHECK(share == Approx(0.25).epsilon(0.02));
  }
}

TEST_CASE("Preemption, whose prefills are not charged, leaves the shares as they are",
          "[sim][fairness]") {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SchedulerConfig config = Config();
    config.watermark_permille = 0;
    std::vector<Load> loads = OneToThree();
    for (Load& load : loads) {
      load.prompt_min = 20;
      load.prompt_max = 100;
      load.output_min = load.tenant * 100;
      load.output_max = load.tenant * 200;
    }
    Traffic traffic(config, 400, {}, loads, seed);
    traffic.Run(600 * kSecond);
    const double share = Share(traffic, 0, 2);
    std::cout << "seed " << seed << ": weight 1 of 4 has " << share << " of "
              << traffic.report(0).tokens + traffic.report(1).tokens << " tokens with "
              << traffic.Stats().preemptions << " preemptions\n";
    CHECK(traffic.Stats().preemptions > 500);
    CHECK(share == Approx(0.25).epsilon(0.02));
  }
}

TEST_CASE(
    "A flood of one tenant at most doubles the wait of another that uses a fifth of its share",
    "[sim][fairness]") {
  Load flood;
  flood.tenant = 1;
  flood.backlog = 500;
  double tokens_per_us = 0;
  {
    Traffic traffic(Config(), 8192, {}, {flood}, 1);
    traffic.Run(100 * kSecond);
    tokens_per_us = static_cast<double>(traffic.report(0).tokens) / (100 * kSecond);
  }
  Load modest;
  modest.tenant = 2;
  const double request_tokens =
      (modest.prompt_min + modest.prompt_max + modest.output_min + modest.output_max) / 2.0;
  // Half of the machine is its share.
  modest.interval_us = static_cast<int64_t>(request_tokens / (tokens_per_us / 2 / 5));
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Traffic alone(Config(), 8192, {}, {modest}, seed);
    alone.Run(1000 * kSecond);
    Traffic beside(Config(), 8192, {}, {modest, flood}, seed);
    beside.Run(1000 * kSecond);
    const LoadReport& quiet = alone.report(0);
    const LoadReport& loaded = beside.report(0);
    std::cout << "seed " << seed << ": " << loaded.let_in << " requests of "
              << 100 * Share(beside, 0, 2) << " % of the tokens wait " << loaded.mean_queue_us
              << " us (at most " << loaded.max_queue_us << "), alone " << quiet.mean_queue_us
              << " us (at most " << quiet.max_queue_us << "); those of the flood "
              << beside.report(1).mean_queue_us << " us\n";
    CHECK(loaded.let_in > 500);
    CHECK(loaded.mean_queue_us <= 2 * quiet.mean_queue_us);
    CHECK(beside.report(1).mean_queue_us > 100 * loaded.mean_queue_us);
  }
}

TEST_CASE("A low priority is let in once it has waited for as long as the others are worth",
          "[sim][fairness]") {
  Load urgent;
  urgent.priority = 5;
  // About twice what the machine can run.
  urgent.interval_us = 10000;
  const auto run = [&](int64_t ageing_us, int64_t* queue_us) {
    SchedulerConfig config = Config();
    config.ageing_us = ageing_us;
    Traffic traffic(config, 8192, {}, {urgent}, 4);
    traffic.Run(20 * kSecond);
    const SequenceId low = traffic.ArriveNow(0, -5);
    const int64_t start_us = traffic.now_us();
    bool is_in = false;
    for (int i = 0; i < 1000 && !is_in; ++i) {
      traffic.Run(traffic.now_us() + kSecond / 10);
      const auto& order = traffic.let_in_order();
      is_in = std::find(order.begin(), order.end(), low) != order.end();
    }
    *queue_us = traffic.now_us() - start_us;
    // It did wait for those that were there before it.
    CHECK(traffic.report(0).max_queue_us > 5 * kSecond);
    return is_in;
  };
  int64_t queue_us = 0;
  CHECK(run(kSecond, &queue_us));
  std::cout << "let in after " << static_cast<double>(queue_us) / kSecond << " s\n";
  CHECK(queue_us >= 10 * kSecond);
  CHECK(queue_us <= 60 * kSecond);
  // Without ageing it starves.
  CHECK_FALSE(run(3600 * kSecond, &queue_us));
}

}  // namespace
}  // namespace weft::router

// The scheduler under seeds: nothing may break, and everything that can go wrong must have
// happened.

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/sim/simulation.h"

namespace weft::router {
namespace {

void Print(uint64_t seed, const SimulationReport& r) {
  std::cout << "seed " << seed << ": " << r.events << " events, " << r.steps << " steps ("
            << r.mixed_steps << " mixed), " << r.tokens << " tokens, ended " << r.ended_by_length
            << " by length, " << r.ended_by_eos << " by eos, " << r.cancelled << " cancelled ("
            << r.cancelled_in_flight << " in flight, " << r.cancelled_mid_prompt
            << " in a prompt), " << r.preemptions << " preemptions (" << r.results_after_preemption
            << " results behind them, " << r.kept_from_preemption << " passing over others, "
            << r.stood_still << " rows stood still), " << r.rows_in_vain << " rows in vain, "
            << r.prefix_hit_tokens << " prefix hit tokens, " << r.evicted_blocks
            << " blocks evicted, " << r.blocks_left << " left behind a window (" << r.came_back
            << " back at once), " << r.window_hits << " prefix hits behind one, " << r.rolled
            << " tables rolled, " << r.groups_lost << " groups lost, " << r.poisoned
            << " ended by them (" << r.unlucky << " without cause), " << r.flushes << " flushes of "
            << r.flushed_blocks << " blocks, " << r.chunked_prompts << " chunked prompts\n";
}

void RunSeed(uint64_t seed, bool kv_windows) {
  SimulationOptions options;
  options.seed = seed;
  options.kv_windows = kv_windows;
  std::cout << "simulation with seed " << seed << (kv_windows ? " and windows" : "") << std::endl;
  const SimulationReport report = RunSimulation(options);
  Print(seed, report);
  CHECK(report.ended_by_length + report.ended_by_eos + report.cancelled + report.poisoned +
            report.unlucky ==
        options.requests);
  CHECK(report.poisoned > 10);
  CHECK(report.unlucky * 10 <= report.poisoned);
  CHECK(report.ended_by_length > 100);
  CHECK(report.ended_by_eos > 100);
  CHECK(report.cancelled_in_flight > 100);
  CHECK(report.cancelled_mid_prompt > 5);
  CHECK(report.preemptions > 100);
  // A sequence that is just let in often holds its blocks for a short while only.
  CHECK(report.kept_from_preemption > (kv_windows ? 3 : 10));
  CHECK(report.results_after_preemption > 10);
  CHECK(report.rows_in_vain > 100);
  CHECK(report.prefix_hit_tokens > 1000);
  CHECK(report.evicted_blocks > 100);
  CHECK(report.groups_lost > 20);
  CHECK(report.flushes > 20);
  CHECK(report.flushed_blocks > 20);
  CHECK(report.mixed_steps > 1000);
  CHECK(report.chunked_prompts > 100);
  if (!kv_windows) return;
  CHECK(report.blocks_left > 10000);
  CHECK(report.window_hits > 20);
  CHECK(report.rolled > 1000);
  CHECK(report.came_back > 1000);
}

TEST_CASE("10,000 requests end once each with the right tokens, seed 1", "[sim]") {
  RunSeed(1, /*kv_windows=*/false);
}
TEST_CASE("10,000 requests end once each with the right tokens, seed 2", "[sim]") {
  RunSeed(2, /*kv_windows=*/false);
}
TEST_CASE("10,000 requests end once each with the right tokens, seed 3", "[sim]") {
  RunSeed(3, /*kv_windows=*/false);
}
TEST_CASE("10,000 requests end once each with the right tokens, seed 4", "[sim]") {
  RunSeed(4, /*kv_windows=*/false);
}
TEST_CASE("10,000 requests end once each with the right tokens, seed 5", "[sim]") {
  RunSeed(5, /*kv_windows=*/false);
}
TEST_CASE("10,000 requests end once each with the right tokens, seed 6", "[sim]") {
  RunSeed(6, /*kv_windows=*/false);
}
TEST_CASE("10,000 requests end once each with the right tokens, seed 7", "[sim]") {
  RunSeed(7, /*kv_windows=*/false);
}
TEST_CASE("10,000 requests end once each with the right tokens, seed 8", "[sim]") {
  RunSeed(8, /*kv_windows=*/false);
}

TEST_CASE("10,000 requests with KV windows, seed 1", "[sim]") { RunSeed(1, /*kv_windows=*/true); }
TEST_CASE("10,000 requests with KV windows, seed 2", "[sim]") { RunSeed(2, /*kv_windows=*/true); }
TEST_CASE("10,000 requests with KV windows, seed 3", "[sim]") { RunSeed(3, /*kv_windows=*/true); }
TEST_CASE("10,000 requests with KV windows, seed 4", "[sim]") { RunSeed(4, /*kv_windows=*/true); }

// Not part of a normal run: WEFT_SIM_SEEDS=100..200 weft_scheduler_sim "[seeds]".
TEST_CASE("Seeds named in the environment", "[.][seeds]") {
  const char* const range = std::getenv("WEFT_SIM_SEEDS");
  REQUIRE(range != nullptr);
  unsigned long first = 0;
  unsigned long last = 0;
  REQUIRE(std::sscanf(range, "%lu..%lu", &first, &last) == 2);
  REQUIRE(first <= last);
  for (uint64_t seed = first; seed <= last; ++seed) {
    RunSeed(seed, /*kv_windows=*/false);
    RunSeed(seed, /*kv_windows=*/true);
  }
}

TEST_CASE("The same seed gives the same plans", "[sim]") {
  SimulationOptions options;
  options.seed = 5;
  options.requests = 1000;
  const uint64_t digest = RunSimulation(options).digest;
  CHECK(RunSimulation(options).digest == digest);
  options.seed = 6;
  CHECK(RunSimulation(options).digest != digest);
}

}  // namespace
}  // namespace weft::router

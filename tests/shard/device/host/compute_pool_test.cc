// The compute pool: every item once, results visible, helpers that sleep and wake, and the decision
// to rest helpers that cost more than they bring.

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "shard/device/host/compute_pool.h"
#include "shard/device/host/pool_backoff.h"

namespace weft::shard {
namespace {

TEST_CASE("A region runs every item once and its writes are visible afterwards",
          "[shard][compute][pool]") {
  for (const int threads : {1, 2, 3, 8}) {
    ComputePool pool(threads);
    CHECK(pool.threads() == threads);
    std::vector<uint32_t> runs(1000);
    for (uint32_t round = 1; round <= 300; ++round) {
      const uint32_t items = round % 7 == 0 ? 1 : round * 3 % 1000;
      std::fill(runs.begin(), runs.end(), 0u);
      std::atomic<bool> bad_thread{false};
      pool.Run(items, [&](uint32_t item, int thread) {
        if (thread < 0 || thread >= threads) bad_thread = true;
        ++runs[item];
      });
      REQUIRE(!bad_thread);
      for (uint32_t item = 0; item < runs.size(); ++item) {
        REQUIRE(runs[item] == (item < items ? 1u : 0u));
      }
    }
  }
}

TEST_CASE("A region of no items returns at once", "[shard][compute][pool]") {
  ComputePool pool(2);
  pool.Run(0, [](uint32_t, int) { FAIL("there is no item"); });
}

TEST_CASE("Helpers that fell asleep take part again", "[shard][compute][pool]") {
  ComputePool pool(2);
  for (int round = 0; round < 5; ++round) {
    // Longer than any spin: the helper is in its futex by the end of this loop.
    const int64_t until_us = MonotonicClock().NowUs() + 20 * ComputePool::kSpinUs;
    while (MonotonicClock().NowUs() < until_us) {
    }
    // An item of each thread waits for the other: only two threads can finish the region.
    std::atomic<int> met{0};
    const int64_t give_up_us = MonotonicClock().NowUs() + 30'000'000;
    bool in_time = true;
    pool.Run(2, [&](uint32_t, int) {
      met.fetch_add(1);
      while (met.load() < 2 && MonotonicClock().NowUs() < give_up_us) {
      }
      if (met.load() < 2) in_time = false;
    });
    REQUIRE(in_time);
    if (pool.backoffs() > 0) break;  // A busy machine: the pool went on alone, as it should.
  }
}

TEST_CASE("Small waits are forgiven, a descheduled helper makes helpers rest",
          "[shard][compute][pool]") {
  PoolBackoff backoff(PoolBackoff::kReading);
  int64_t now_us = 1'000'000;
  REQUIRE(backoff.HelpersWanted(now_us));
  // A tenth of a millisecond every two: five percent, helpers stay.
  for (int i = 0; i < 1000; ++i) {
    now_us += 2'000;
    CHECK_FALSE(backoff.OnStall(now_us, 100));
    CHECK(backoff.HelpersWanted(now_us));
  }
  // One time slice lost.
  now_us += 2'000;
  CHECK(backoff.OnStall(now_us, 3'000));
  CHECK(backoff.pause_us() == PoolBackoff::kPauseMinUs);
  CHECK_FALSE(backoff.HelpersWanted(now_us + PoolBackoff::kPauseMinUs - 1));
  CHECK(backoff.HelpersWanted(now_us + PoolBackoff::kPauseMinUs));
}

TEST_CASE("Helpers that double the speed stay through lost time slices", "[shard][compute][pool]") {
  PoolBackoff backoff(PoolBackoff::kComputing);
  int64_t now_us = 1'000'000;
  // One slice in every ten milliseconds: still faster than alone.
  for (int i = 0; i < 1000; ++i) {
    now_us += 10'000;
    REQUIRE_FALSE(backoff.OnStall(now_us, 3'000));
  }
  // Half of the time: no gain is left.
  int stalls = 0;
  while (!backoff.OnStall(now_us += 6'000, 3'000)) REQUIRE(++stalls < 100);
  CHECK(stalls > 3);
  CHECK_FALSE(backoff.HelpersWanted(now_us + 1));
}

TEST_CASE("The pause doubles while helpers keep failing and shrinks once they are trusted",
          "[shard][compute][pool]") {
  PoolBackoff backoff(PoolBackoff::kReading);
  int64_t now_us = 1'000'000;
  int64_t expected_us = PoolBackoff::kPauseMinUs;
  for (int i = 0; i < 8; ++i) {
    REQUIRE(backoff.HelpersWanted(now_us));
    now_us += 4'000;
    REQUIRE(backoff.OnStall(now_us, 3'000));
    CHECK(backoff.pause_us() == expected_us);
    expected_us = std::min(expected_us * 2, PoolBackoff::kPauseMaxUs);
    now_us += backoff.pause_us();
  }
  REQUIRE(backoff.HelpersWanted(now_us));
  now_us += PoolBackoff::kTrustUs + 1;
  REQUIRE(backoff.OnStall(now_us, 12'000));
  CHECK(backoff.pause_us() == PoolBackoff::kPauseMinUs);
}

}  // namespace
}  // namespace weft::shard

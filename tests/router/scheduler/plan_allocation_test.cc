// Plan() allocates nothing (invariant sched.pure): this file replaces operator new with one that
// counts while a plan is made.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "router/scheduler/scheduler.h"

namespace {

bool counting = false;
int allocations = 0;

}  // namespace

// Not inlined: the compiler would see new meet free.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (counting) ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// Its own replacement, or a sanitizer's would meet our delete.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (counting) ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weft::router {
namespace {

// Thousands of plans that admit, preempt and evict; how many allocations they made.
void RunPlans(const std::vector<uint32_t>& kv_windows, uint32_t kv_blocks) {
  allocations = 0;
  SchedulerConfig config;
  config.kv_windows = kv_windows;
  config.running_max = 64;
  config.step_tokens_max = 128;
  config.block_tokens = 4;
  config.context_tokens_max = 256;
  config.inter_token_target_us = 3000;
  config.eos_ids = {0};
  Scheduler scheduler(config);
  const GroupInfo::Cost costs[] = {{1, 0, 0, 100}, {0, 64, 0, 3200}};
  GroupInfo group;
  group.kv_blocks = kv_blocks;
  group.costs = costs;
  std::mt19937_64 random(7);
  SequenceId id = 0;
  std::deque<StepPlan> in_flight;
  std::vector<Emitted> emitted;
  std::vector<Ended> ended;
  int plans = 0;
  int64_t now_us = 0;
  for (int i = 0; i < 20000; ++i) {
    if (i % 7000 == 0) {
      scheduler.OnGroupLost(now_us, &ended);
      in_flight.clear();
      scheduler.OnGroupFormed(group, now_us, &ended);
    }
    if (scheduler.Stats().waiting < 50) {
      std::vector<TokenId> prompt(1 + random() % 100);
      for (TokenId& token : prompt) token = 1 + random() % 2;
      Arrival arrival;
      arrival.id = ++id;
      arrival.prompt = Prompt(std::move(prompt));
      arrival.max_new_tokens = 1 + random() % 100;
      arrival.priority = static_cast<int32_t>(random() % 3);
      // Every third one is of a tenant that nobody has seen, and most of those are forgotten.
      arrival.tenant = random() % 3 == 0 ? static_cast<TenantIndex>(id) : random() % 20;
      arrival.tenant_weight = 1 + random() % 3;
      REQUIRE(scheduler.OnArrival(std::move(arrival), now_us).ok());
    }
    if (random() % 20 == 0) scheduler.OnCancel(1 + random() % id, now_us, &ended);
    now_us += 20000;
    counting = true;
    const StepPlan* const plan = scheduler.Plan(now_us);
    counting = false;
    if (plan != nullptr) {
      ++plans;
      in_flight.push_back(*plan);
    }
    if (in_flight.empty() || random() % 2 == 0) continue;
    const StepPlan& oldest = in_flight.front();
    std::vector<SampledRow> rows;
    for (const Slot slot : oldest.decode_slots) {
      rows.push_back({slot, static_cast<TokenId>(random() % 50)});
    }
    for (const PlannedChunk& chunk : oldest.chunks) {
      if (chunk.last) rows.push_back({chunk.slot, 1});
    }
    scheduler.OnStepDone(oldest.step, rows, {500}, now_us, &emitted, &ended);
    in_flight.pop_front();
  }
  const SchedulerStats stats = scheduler.Stats();
  CHECK(plans > 5000);
  CHECK(stats.preemptions > 10);
  CHECK(stats.evicted_blocks > 1000);
  CHECK(stats.prefix_hit_tokens > 100);
  CHECK(stats.tenants > 100);
  CHECK(allocations == 0);
}

TEST_CASE("Plan allocates no memory, also when it admits, preempts and evicts",
          "[router][scheduler]") {
  SECTION("one KV group") { RunPlans({0}, 300); }
  // Chunks of up to 128 tokens on windows that are shorter: prompts of 100 tokens do not roll, logs
  // that are prefilled again do.
  SECTION("KV groups with windows") { RunPlans({20, 0, 3, 70}, 900); }
  // The counter itself works.
  counting = true;
  ::operator delete(::operator new(8));
  counting = false;
  CHECK(allocations == 1);
}

}  // namespace
}  // namespace weft::router

#include "router/scheduler/tenant_table.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace weft::router {
namespace {

// Gives tenants sequences that wait, as the queue does.
class Tenants {
 public:
  TenantShare* Wait(TenantIndex index, double weight = 1) {
    TenantShare* const tenant = table.Enter(index, weight);
    auto sequence = std::make_unique<Sequence>();
    sequence->id = sequences_.size() + 1;
    tenant->waiting.insert(sequence.get());
    sequences_.push_back(std::move(sequence));
    if (tenant->waiting.size() == 1) table.StartWaiting(tenant);
    return tenant;
  }
  // Its first sequence is let in and ends after `tokens`.
  void Run(TenantShare* tenant, int64_t tokens, int64_t now_us = 0) {
    tenant->waiting.erase(tenant->waiting.begin());
    if (tenant->waiting.empty()) table.StopWaiting(tenant);
    table.NoteTurn(*tenant);
    table.Charge(tenant, tokens);
    table.Leave(tenant, now_us);
    table.CheckInvariantsForTest();
  }

  TenantTable table;

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST_CASE("Tenants are served by their weights", "[router][scheduler]") {
  Tenants t;
  std::mt19937_64 random(3);
  const double weights[] = {1, 3, 0.5};
  std::map<TenantIndex, int64_t> served;
  for (TenantIndex index = 0; index < 3; ++index) {
    for (int i = 0; i < 5; ++i) t.Wait(index, weights[index]);
  }
  int64_t all = 0;
  while (all < 10'000'000) {
    TenantShare* const next = t.table.Next();
    const TenantIndex index = next->index;
    const auto tokens = static_cast<int64_t>(1 + random() % 1000);
    served[index] += tokens;
    all += tokens;
    t.Wait(index, weights[index]);
    t.Run(next, tokens);
  }
  for (TenantIndex index = 0; index < 3; ++index) {
    const double share = static_cast<double>(served[index]) / static_cast<double>(all);
    INFO("tenant " << index << " share " << share);
    CHECK(share == Approx(weights[index] / 4.5).epsilon(0.01));
  }
}

TEST_CASE("A tenant that comes back has saved nothing up", "[router][scheduler]") {
  Tenants t;
  TenantShare* const busy = t.Wait(1);
  for (int i = 0; i < 10; ++i) t.Wait(1);
  for (int i = 0; i < 10; ++i) t.Run(busy, 1000);
  TenantShare* const returning = t.Wait(2);
  CHECK(returning->served == busy->served);
  // It comes first, but not for all that the other had.
  CHECK(t.table.Next() == returning);
  t.Wait(2);
  t.Run(returning, 1);
  CHECK(t.table.Next() == busy);
}

TEST_CASE("Leaving and coming back forgives nothing at once, and everything after a while",
          "[router][scheduler]") {
  Tenants t;
  TenantShare* const other = t.Wait(1);
  t.Run(t.Wait(2), 5000, 10);
  TenantShare* back = t.Wait(2);
  CHECK(back->served == other->served + 5000);
  t.Run(back, 0, 20);
  t.table.ForgetIdle(20 + kTenantIdleUs - 1);
  CHECK(t.table.size() == 2);
  t.table.ForgetIdle(20 + kTenantIdleUs);
  CHECK(t.table.size() == 1);
  back = t.Wait(2);
  CHECK(back->served == other->served);
}

TEST_CASE("Work that was charged and not done is given back", "[router][scheduler]") {
  Tenants t;
  TenantShare* const a = t.Wait(1);
  TenantShare* const b = t.Wait(2);
  t.table.Charge(a, 100);
  t.table.Charge(b, 50);
  CHECK(t.table.Next() == b);
  t.table.Charge(a, -60);
  CHECK(t.table.Next() == a);
  t.table.CheckInvariantsForTest();
}

TEST_CASE("The table forgets the longest idle when there are too many", "[router][scheduler]") {
  Tenants t;
  for (TenantIndex index = 0; index < 5 * kTenantsIdleMax; ++index) {
    t.Run(t.Wait(index), 7, index);
    REQUIRE(t.table.size() <= kTenantsIdleMax);
  }
  CHECK(t.table.size() == kTenantsIdleMax);
  CHECK(t.table.active() == 0);
  // The latest is known, and owes what it had beyond the others.
  CHECK(t.Wait(5 * kTenantsIdleMax - 1)->served > 0);
}

TEST_CASE("The least served tenant of many is always next", "[router][scheduler]") {
  Tenants t;
  std::mt19937_64 random(11);
  std::vector<TenantShare*> all;
  for (TenantIndex index = 0; index < 300; ++index) all.push_back(t.Wait(index, 1 + index % 7));
  for (int i = 0; i < 20000; ++i) {
    t.table.Charge(all[random() % all.size()], static_cast<int64_t>(random() % 100) - 20);
    const TenantShare* const next = t.table.Next();
    for (const TenantShare* tenant : all) REQUIRE(next->served <= tenant->served);
  }
  t.table.CheckInvariantsForTest();
}

}  // namespace
}  // namespace weft::router

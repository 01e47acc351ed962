// Whose turn it is of the requests that no group has.

#include "router/groups/fair_queue.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

namespace weft::router {
namespace {

QueuedRequest Of(TenantIndex tenant, SequenceId id, int64_t arrival_us = 0, int32_t priority = 0,
                 double weight = 1) {
  return {id, tenant, weight, priority, arrival_us};
}

// Hands out everything, each of `tokens`, and says in which order.
std::vector<SequenceId> DrainAll(FairQueue* queue, uint32_t tokens = 100) {
  std::vector<SequenceId> order;
  while (!queue->empty()) {
    order.push_back(queue->Next());
    queue->HandOut(order.back(), tokens);
    queue->CheckInvariantsForTest();
  }
  return order;
}

TEST_CASE("Of one tenant the first by arrival goes next, and a priority is an earlier arrival",
          "[router][groups]") {
  FairQueue queue;
  queue.Push(Of(0, 1, 100), true);
  queue.Push(Of(0, 2, 50), true);
  queue.Push(Of(0, 3, 200, 1), true);
  CHECK(DrainAll(&queue) == std::vector<SequenceId>{3, 2, 1});
}

TEST_CASE("Tenants take turns whatever they have waiting", "[router][groups]") {
  FairQueue queue;
  for (SequenceId id = 1; id <= 10; ++id) queue.Push(Of(1, id, static_cast<int64_t>(id)), true);
  for (SequenceId id = 11; id <= 12; ++id) queue.Push(Of(2, id, 1'000), true);
  const std::vector<SequenceId> order = DrainAll(&queue);
  CHECK(std::vector<SequenceId>(order.begin(), order.begin() + 4) ==
        std::vector<SequenceId>{11, 1, 12, 2});
}

TEST_CASE("A tenant of twice the weight is handed out twice as much", "[router][groups]") {
  FairQueue queue;
  for (SequenceId id = 1; id <= 60; ++id) {
    queue.Push(Of(1, id, 0, 0, 1), true);
    queue.Push(Of(2, 100 + id, 0, 0, 2), true);
  }
  std::map<TenantIndex, int> of;
  for (int i = 0; i < 60; ++i) {
    const SequenceId id = queue.Next();
    queue.HandOut(id, 100);
    ++of[id > 100 ? 2 : 1];
  }
  CHECK(of[1] == 20);
  CHECK(of[2] == 40);
}

TEST_CASE("What groups generate counts for a tenant's share", "[router][groups]") {
  FairQueue queue;
  for (SequenceId id = 1; id <= 4; ++id) queue.Push(Of(1, id), true);
  for (SequenceId id = 5; id <= 8; ++id) queue.Push(Of(2, id), true);
  const SequenceId first = queue.Next();
  queue.HandOut(first, 100);
  const TenantIndex tenant = first <= 4 ? 1 : 2;
  // It generates as much as three prompts of the other.
  queue.Charge(tenant, 200, 0, 0);
  for (int i = 0; i < 3; ++i) {
    const SequenceId next = queue.Next();
    CHECK((next <= 4 ? 1u : 2u) != tenant);
    queue.HandOut(next, 100);
  }
}

TEST_CASE("A request that comes back keeps its turn, and its tenant is not charged",
          "[router][groups]") {
  FairQueue queue;
  queue.Push(Of(1, 1, 10), true);
  queue.Push(Of(1, 2, 20), true);
  queue.HandOut(1, 500);
  CHECK(queue.ServedForTest(1) == 500);
  queue.TakeBack(1, 500);
  queue.Push(Of(1, 1, 10), false);
  CHECK(queue.ServedForTest(1) == 0);
  CHECK(DrainAll(&queue) == std::vector<SequenceId>{1, 2});
}

TEST_CASE("A tenant is forgotten when all its requests have ended, here and in groups",
          "[router][groups]") {
  FairQueue queue;
  queue.Push(Of(1, 1), true);
  queue.Push(Of(1, 2), true);
  queue.HandOut(1, 10);
  queue.Drop(2, 0);
  CHECK(queue.TenantsForTest() == 1);
  queue.Charge(1, 5, 1, 0);
  CHECK(queue.TenantsForTest() == 0);
  queue.CheckInvariantsForTest();
}

TEST_CASE("A parked request lets others pass and comes back at its turn", "[router][groups]") {
  FairQueue queue;
  queue.Push(Of(1, 1, 10), true);
  queue.Push(Of(1, 2, 20), true);
  queue.Park(1);
  CHECK(queue.Next() == 2);
  CHECK(queue.size() == 2);
  queue.CheckInvariantsForTest();
  queue.Unpark();
  CHECK(queue.Next() == 1);
  queue.Park(1);
  queue.Drop(1, 0);
  CHECK(DrainAll(&queue) == std::vector<SequenceId>{2});
}

TEST_CASE("A tenant holds its share when it has that part of all places", "[router][groups]") {
  FairQueue queue;
  for (SequenceId id = 1; id <= 9; ++id) queue.Push(Of(1, id), true);
  queue.HandOut(1, 1);
  // Nobody else is known.
  CHECK_FALSE(queue.HoldsShare(2, 2));
  queue.Push(Of(2, 20), true);
  CHECK(queue.HoldsShare(2, 2));
  CHECK_FALSE(queue.HoldsShare(2, 4));
  CHECK_FALSE(queue.HoldsShare(20, 2));
}

}  // namespace
}  // namespace weft::router

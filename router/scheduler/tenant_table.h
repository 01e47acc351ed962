// The tenants that have sequences here, and what each was served: tokens of real work divided by
// its weight. Says whose turn it is among those with waiting sequences, by weighted fair queueing.
//
// A tenant with nothing waiting collects no credit: when it begins to wait it is lifted to the
// least served of those that wait already (or, when nobody waits, to the tenant let in last). What
// it was served beyond that is remembered for kTenantIdleUs after its last sequence, so that
// leaving and coming back gains nothing, and then forgotten.
//
// The table is bounded: by the live sequences, and by kTenantsIdleMax of those without any. Part of
// the scheduler, one thread. Only Enter() allocates memory.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "router/scheduler/events.h"
#include "router/scheduler/scheduler_state.h"
#include "router/scheduler/sequence.h"

namespace weft::router {

// How long a tenant without sequences is remembered.
inline constexpr int64_t kTenantIdleUs = 60'000'000;
// Tenants without sequences that are remembered; of more, the longest idle are forgotten.
inline constexpr uint32_t kTenantsIdleMax = 1024;

struct TenantShare {
  TenantIndex index = 0;
  double weight = 1;
  // Tokens served, each divided by the weight at that time; only differences mean anything.
  double served = 0;
  // Sequences, waiting or running, and those of them that hold a slot.
  uint32_t live = 0;
  uint32_t running = 0;
  // Its waiting sequences; the first goes next.
  TurnSet waiting;

  // -- Kept by TenantTable ------------------------------------------------------------------------
  // Index in the heap of those who wait.
  uint32_t heap_place = 0;
  // Grows with each tenant that begins to wait.
  uint64_t wait_number = 0;
  // Since when it has no sequence, and its neighbours among those without.
  int64_t idle_since_us = 0;
  TenantShare* idle_longer = nullptr;
  TenantShare* idle_shorter = nullptr;
};

class TenantTable {
 public:
  // One sequence more of tenant `index`, whose weight is `weight` (> 0) from now on. The tenant
  // stays where it is until ForgetIdle() drops it.
  TenantShare* Enter(TenantIndex index, double weight);
  // One sequence less.
  void Leave(TenantShare* tenant, int64_t now_us);
  void ForgetIdle(int64_t now_us);

  // `tokens` of work were done for the tenant; a negative number takes work back that was charged
  // in advance and never done.
  void Charge(TenantShare* tenant, int64_t tokens);

  // The first of its sequences waits; the last one waits no longer.
  void StartWaiting(TenantShare* tenant);
  void StopWaiting(TenantShare* tenant);
  // Its first sequence is let in: newcomers start where it stands if nobody waits.
  void NoteTurn(const TenantShare& tenant);

  // The least served of those that wait, or null. Among equals who began to wait last: it was
  // lifted to the others, who have been served since they began.
  TenantShare* Next() const { return heap_.empty() ? nullptr : heap_[0]; }

  // Known tenants, those remembered without sequences included.
  uint32_t size() const { return static_cast<uint32_t>(tenants_.size()); }
  // The sum of their weights.
  double weights() const { return weights_; }
  // Tenants with sequences.
  uint32_t active() const { return size() - idle_count_; }

  // Its part of a scheduler's state, and the way back: when every live sequence has come in again
  // (and, where it waits, its tenant has begun to), the tenants get their state.
  void Save(SchedulerState* state) const;
  absl::Status Restore(const SchedulerState& state);

  void CheckInvariantsForTest() const;

 private:
  static bool Before(const TenantShare& a, const TenantShare& b) {
    return a.served != b.served ? a.served < b.served : a.wait_number > b.wait_number;
  }
  void Place(TenantShare* tenant, size_t place);
  void SiftUp(size_t place);
  void SiftDown(size_t place);
  void Restore(size_t place);
  void LinkIdle(TenantShare* tenant, int64_t since_us);
  void UnlinkIdle(TenantShare* tenant);
  void ForgetOldest();

  absl::flat_hash_map<TenantIndex, std::unique_ptr<TenantShare>> tenants_;
  // A binary heap by Before(). Its capacity holds all tenants.
  std::vector<TenantShare*> heap_;
  // Where the last one that was let in stood before.
  double turn_served_ = 0;
  double weights_ = 0;
  uint64_t waits_ = 0;
  TenantShare* idle_longest_ = nullptr;
  TenantShare* idle_shortest_ = nullptr;
  uint32_t idle_count_ = 0;
};

}  // namespace weft::router

// The requests that no group has: whose turn it is among tenants and inside a tenant, by the
// scheduler's own rules and code (router/scheduler/tenant_table.h, waiting_queue.h), so that there
// is one idea of fairness however many groups there are. A tenant is charged for a prompt when a
// request is handed out, and for what it generates as the groups tell. Pure: time is an input. Part
// of the dispatcher, one thread.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "router/scheduler/sequence.h"
#include "router/scheduler/tenant_table.h"
#include "router/scheduler/waiting_queue.h"

namespace weft::router {

struct QueuedRequest {
  SequenceId id = 0;
  TenantIndex tenant = 0;
  double weight = 1;
  int32_t priority = 0;
  // When it arrived; it keeps that when it comes back from a group.
  int64_t arrival_us = 0;
};

class FairQueue {
 public:
  // One request more here; `is_new`: it does not come back from a group.
  void Push(const QueuedRequest& request, bool is_new);
  // Whose turn it is. REQUIRES: not empty.
  SequenceId Next() const;
  bool empty() const { return queue_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(waiting_.size()); }
  bool Has(SequenceId id) const { return waiting_.contains(id); }

  // It goes to a group: its tenant is charged for the prompt.
  void HandOut(SequenceId id, uint32_t prompt_tokens);
  // It comes back: Push follows.
  void TakeBack(TenantIndex tenant, uint32_t prompt_tokens);
  // It ends here.
  void Drop(SequenceId id, int64_t now_us);
  // Nobody can take it now: it keeps its place and its turn passes, until Unpark.
  void Park(SequenceId id);
  void Unpark();

  // What groups say: tokens of a tenant, and ends of requests that were handed out.
  void Charge(TenantIndex tenant, int64_t tokens, uint32_t ended, int64_t now_us);
  void Advance(int64_t now_us) { tenants_.ForgetIdle(now_us); }

  // The tenant of `id` has its share, by weight, of `places` handed out.
  bool HoldsShare(SequenceId id, uint32_t places) const;

  // -- For tests
  // With requests, here or in a group.
  uint32_t TenantsForTest() const { return static_cast<uint32_t>(present_.size()); }
  // What its tenant was served: tokens divided by weight; 0 for one without requests.
  // Choices of a request that was handed out count as requests of their own. REQUIRES: that one has
  // not ended.
  void Join(TenantIndex tenant, uint32_t choices);
  double ServedForTest(TenantIndex tenant) const;
  void CheckInvariantsForTest() const;

 private:
  struct Waiting {
    // Of the scheduler's record only what decides on its turn is used.
    Sequence order;
    bool parked = false;
  };
  void Leave(TenantShare* tenant, int64_t now_us);

  TenantTable tenants_;
  WaitingQueue queue_{&tenants_};
  absl::flat_hash_map<SequenceId, std::unique_ptr<Waiting>> waiting_;
  // Tenants with requests, here or in a group.
  absl::flat_hash_map<TenantIndex, TenantShare*> present_;
  uint32_t parked_ = 0;
};

}  // namespace weft::router

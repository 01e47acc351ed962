// Sequences without a slot. First those that ran when a group was lost, whoever they belong to;
// then the tenants in turn, the least served first (tenant_table.h), and of a tenant the sequences
// by their turn, which counts a higher priority as an earlier arrival. Every operation is O(log n)
// and allocates no memory but for the first Push() of a sequence. Part of the scheduler, one
// thread.

#pragma once

#include <array>
#include <cstdint>

#include "common/limits.h"
#include "router/scheduler/sequence.h"
#include "router/scheduler/tenant_table.h"

namespace weft::router {

class WaitingQueue {
 public:
  // `tenants` outlives the queue.
  explicit WaitingQueue(TenantTable* tenants) : tenants_(*tenants) {}

  bool empty() const { return size_ == 0; }
  uint32_t size() const { return size_; }

  // Its turn, its tenant and whether it is recovering decide its place.
  void Push(Sequence* sequence);
  // REQUIRES: `sequence` is in the queue.
  void Remove(Sequence* sequence);

  // Who goes next, or null.
  Sequence* DoorContext() const;
  // Who follows `sequence` among those that recover or those of its tenant, or null.
  Sequence* After(const Sequence& sequence) const;

  bool HigherPriorityWaits(int32_t priority) const {
    return size_ > 0 && highest_priority_ > Level(priority);
  }

  // The first by turn, of any tenant, for which f(const Sequence&) is true; or null. Looks at all.
  template <typename F>
  Sequence* FindIf(F f) const {
    Sequence* first = nullptr;
    for (Sequence* s = head_; s != nullptr; s = s->next) {
      if (f(*s) && (first == nullptr || s->Outranks(*first))) first = s;
    }
    return first;
  }

  // Calls f(const Sequence&) for all, in no useful order.
  template <typename F>
  void ForEach(F f) const {
    for (const Sequence* s = head_; s != nullptr; s = s->next) f(*s);
  }

 private:
  static size_t Level(int32_t priority) { return static_cast<size_t>(priority + kPriorityAbsMax); }
  TurnSet& SetOf(const Sequence& sequence) {
    return sequence.returns_first ? returning_ : sequence.tenant->waiting;
  }
  const TurnSet& SetOf(const Sequence& sequence) const {
    return sequence.returns_first ? returning_ : sequence.tenant->waiting;
  }

  TenantTable& tenants_;
  // Recovering sequences, by turn.
  TurnSet returning_;
  // All, linked through the sequences.
  Sequence* head_ = nullptr;
  uint32_t size_ = 0;
  // Waiting sequences of each priority, and the highest level that has any.
  std::array<uint32_t, 2 * kPriorityAbsMax + 1> at_priority_{};
  size_t highest_priority_ = 0;
};

}  // namespace weft::router

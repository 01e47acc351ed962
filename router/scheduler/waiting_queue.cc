#include "router/scheduler/waiting_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"

namespace weft::router {

void WaitingQueue::Push(Sequence* sequence) {
  sequence->returns_first = sequence->recovering;
  TurnSet& set = SetOf(*sequence);
  if (sequence->turn_node.empty()) {
    sequence->turn_place = set.insert(sequence).first;
  } else {
    sequence->turn_place = set.insert(std::move(sequence->turn_node)).position;
  }
  if (!sequence->returns_first && set.size() == 1) tenants_.StartWaiting(sequence->tenant);
  sequence->previous = nullptr;
  sequence->next = head_;
  if (head_ != nullptr) head_->previous = sequence;
  head_ = sequence;
  ++size_;
  ++at_priority_[Level(sequence->priority)];
  highest_priority_ = std::max(highest_priority_, Level(sequence->priority));
}

void WaitingQueue::Remove(Sequence* sequence) {
  TurnSet& set = SetOf(*sequence);
  WEFT_CHECK(sequence->turn_node.empty());
  sequence->turn_node = set.extract(sequence->turn_place);
  if (!sequence->returns_first && set.empty()) tenants_.StopWaiting(sequence->tenant);
  (sequence->previous == nullptr ? head_ : sequence->previous->next) = sequence->next;
  if (sequence->next != nullptr) sequence->next->previous = sequence->previous;
  sequence->previous = sequence->next = nullptr;
  --size_;
  --at_priority_[Level(sequence->priority)];
  while (highest_priority_ > 0 && at_priority_[highest_priority_] == 0) --highest_priority_;
}

Sequence* WaitingQueue::DoorContext() const {
  if (!returning_.empty()) return *returning_.begin();
  const TenantShare* const tenant = tenants_.Next();
  return tenant == nullptr ? nullptr : *tenant->waiting.begin();
}

Sequence* WaitingQueue::After(const Sequence& sequence) const {
  const auto after = std::next(sequence.turn_place);
  return after == SetOf(sequence).end() ? nullptr : *after;
}

}  // namespace weft::router

#include "router/scheduler/waiting_queue.h"

#include <algorithm>

namespace weft::router {
namespace {

size_t ListIndex(const Sequence& sequence) {
  return static_cast<size_t>(sequence.priority + kPriorityAbsMax);
}

}  // namespace

WaitingQueue::List& WaitingQueue::Enter(const Sequence& sequence) {
  ++size_;
  top_ = std::max(top_, ListIndex(sequence));
  return lists_[ListIndex(sequence)];
}

void WaitingQueue::PushBack(Sequence* sequence) {
  List& list = Enter(*sequence);
  sequence->previous = list.tail;
  sequence->next = nullptr;
  (list.tail == nullptr ? list.head : list.tail->next) = sequence;
  list.tail = sequence;
}

void WaitingQueue::PushFront(Sequence* sequence) {
  List& list = Enter(*sequence);
  sequence->previous = nullptr;
  sequence->next = list.head;
  (list.head == nullptr ? list.tail : list.head->previous) = sequence;
  list.head = sequence;
}

void WaitingQueue::Remove(Sequence* sequence) {
  List& list = lists_[ListIndex(*sequence)];
  (sequence->previous == nullptr ? list.head : sequence->previous->next) = sequence->next;
  (sequence->next == nullptr ? list.tail : sequence->next->previous) = sequence->previous;
  sequence->previous = sequence->next = nullptr;
  --size_;
}

Sequence* WaitingQueue::Front() {
  while (top_ > 0 && lists_[top_].head == nullptr) --top_;
  return lists_[top_].head;
}

}  // namespace weft::router

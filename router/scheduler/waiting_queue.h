// Sequences without a slot: one list per priority, first come first served; who was preempted goes
// back to the head. Linked through the sequences, so every operation is constant-time (Front()
// scans empty priorities at worst) and never allocates. Part of the scheduler, one thread.

#pragma once

#include <array>
#include <cstdint>

#include "common/limits.h"
#include "router/scheduler/sequence.h"

namespace weft::router {

class WaitingQueue {
 public:
  bool empty() const { return size_ == 0; }
  uint32_t size() const { return size_; }

  void PushBack(Sequence* sequence);
  void PushFront(Sequence* sequence);
  // REQUIRES: `sequence` is in the queue.
  void Remove(Sequence* sequence);

  // The head of the highest priority, or null. The others of that priority follow by `next`.
  Sequence* Front();

  // The first for which f(const Sequence&) is true, highest priority first; or null.
  template <typename F>
  Sequence* FindIf(F f) const {
    for (auto list = lists_.rbegin(); list != lists_.rend(); ++list) {
      for (Sequence* s = list->head; s != nullptr; s = s->next) {
        if (f(*s)) return s;
      }
    }
    return nullptr;
  }

  // Calls f(const Sequence&) for all, highest priority first.
  template <typename F>
  void ForEach(F f) const {
    for (auto list = lists_.rbegin(); list != lists_.rend(); ++list) {
      for (const Sequence* s = list->head; s != nullptr; s = s->next) f(*s);
    }
  }

 private:
  struct List {
    Sequence* head = nullptr;
    Sequence* tail = nullptr;
  };

  // Notes that `sequence` enters and returns its list.
  List& Enter(const Sequence& sequence);

  std::array<List, 2 * kPriorityAbsMax + 1> lists_;
  // Lists above are empty.
  size_t top_ = 0;
  uint32_t size_ = 0;
};

}  // namespace weft::router

// Who loses slot and blocks when rows of the next step need more blocks than are free.

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

bool Scheduler::Impl::NeedsBlock(const Sequence& s) const {
  return s.phase == Phase::kDecoding && s.planned_length() < s.length_limit &&
         s.computed == s.table.size() * config_.block_tokens;
}

void Scheduler::Impl::MakeRoomForRows() {
  if (pool_.free_count() >= running_.size()) return;
  auto needed = static_cast<uint32_t>(std::count_if(
      running_.begin(), running_.end(), [this](const Sequence* s) { return NeedsBlock(*s); }));
  while (needed > pool_.free_count()) {
    Sequence* const victim = ChooseVictim();
    if (victim == nullptr) return;
    needed -= NeedsBlock(*victim) ? 1 : 0;
    Preempt(victim);
  }
}

Sequence* Scheduler::Impl::ChooseVictim() const {
  Sequence* victim = nullptr;
  // Among equals the last by turn.
  for (size_t i = running_.size(); i-- > 1;) {
    Sequence* const s = running_[i];
    if (s->kept()) continue;
    if (victim == nullptr || s->tenant->served > victim->tenant->served) victim = s;
  }
  return victim;
}

void Scheduler::Impl::Preempt(Sequence* sequence) {
  // The first by turn never goes: the others' blocks are enough for it.
  WEFT_CHECK_NE(sequence, running_.front());
  Vacate(sequence);
  waiting_.Push(sequence);
  preempted_ = true;
  ++preemptions_;
}

}  // namespace weft::router

// Who loses slot and blocks when rows of the next step need more blocks than are free.

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

bool Scheduler::Impl::NeedsBlock(const Sequence& s) const {
  return s.phase == Phase::kDecoding && s.planned_length() < s.length_limit &&
         s.computed == uint64_t{s.reach} * config_.block_tokens;
}

uint32_t Scheduler::Impl::BlocksNeeded() const {
  const auto rows = std::count_if(running_.begin(), running_.end(),
                                  [this](const Sequence* s) { return NeedsBlock(*s); });
  return static_cast<uint32_t>(rows) * groups_.count();
}

void Scheduler::Impl::MakeRoomForRows() {
  if (pool_.free_count() >= running_.size() * groups_.count()) return;
  uint32_t needed = BlocksNeeded();
  // What lies behind the windows goes first: what may be published later last.
  for (const bool all : {false, true}) {
    if (needed <= pool_.free_count()) return;
    for (Sequence* const s : running_) LeaveBehind(s, s->computed, s->computed + 1, all);
  }
  while (needed > pool_.free_count()) {
    Sequence* const victim = ChooseVictim();
    if (victim == nullptr) return;
    needed -= NeedsBlock(*victim) ? groups_.count() : 0;
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

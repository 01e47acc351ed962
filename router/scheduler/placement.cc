// Who gets a slot and blocks, and how both are given back.

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

bool Scheduler::Impl::TryAdmit(Sequence* s) {
  const Slot slot = free_slots_.First();
  if (slot == kNoSlot || chunk_count_ == kChunksPerStepMax) return false;
  // Blocks that a preemption of this plan freed are for the row that needed them.
  if (preempted_) return false;
  // A suspect runs alone or not at all.
  if (s->suspect() && s != on_trial_) return false;
  // Its log is not complete before the answers are in (invariant ahead.count).
  if (s->steps_in_flight > 0) return false;
  if (s->refused_at_freed == pool_.freed_count()) return false;
  // Windows give blocks back in most steps: there is no use in another look before there are as
  // many as it lacked. Alone it comes in as it is.
  if (groups_.any_window() && !running_.empty() && s->refused_cost > pool_.free_count()) {
    return false;
  }
  const bool leaves_reserve = LeavesReserve(*s);
  if (leaves_reserve && config_.running_max - running_.size() <= reserve_slots_) return false;

  const uint32_t hits = LookUpPrefix(s);
  const auto length = static_cast<uint32_t>(s->log.size());
  // Who comes in out of the order of arrival brings the blocks that it is kept for.
  const bool out_of_order = tenants_.active() > 1 || waiting_.HigherPriorityWaits(s->priority);
  const uint32_t kept_until =
      out_of_order ? std::min(length + config_.block_tokens, s->length_limit - 1) : 0;
  const uint32_t reach = BlocksFor(std::max(length, kept_until));
  const uint32_t needed = CostOfTables(*s, hits, reach);
  // Alone, any sequence may have the whole pool: so there is never a deadlock.
  const uint32_t spared =
      running_.empty() ? 0 : watermark_blocks_ + (leaves_reserve ? reserve_blocks_ : 0);
  if (needed + spared > pool_.free_count()) {
    for (BlockTable& table : s->tables) table.Clear();
    s->refused_at_freed = pool_.freed_count();
    s->refused_cost = needed;
    return false;
  }
  TakeTables(s, hits, reach);
  s->computed = s->confirmed = hits * config_.block_tokens;
  s->published_blocks = hits;
  s->kept_until = kept_until;
  waiting_.Remove(s);
  CountAdmission(s);
  s->slot = slot;
  s->phase = Phase::kPrefilling;
  s->first_chunk = true;
  EnterRunning(s);
  Tell(s);
  return true;
}

bool Scheduler::Impl::LeavesReserve(const Sequence& s) const {
  // What ran before the group was lost has its place already.
  if (s.recovering || tenants_.size() == 1) return false;
  const double share = config_.running_max * s.tenant->weight / tenants_.weights();
  return s.tenant->running >= share;
}

void Scheduler::Impl::CountAdmission(Sequence* s) {
  tenants_.NoteTurn(*s->tenant);
  if (s->was_admitted) return;
  s->was_admitted = true;
  s->cached_tokens = s->prompt_reached = s->computed;
  prefix_hit_tokens_ += s->computed;
  if (!s->bypass_prefix_cache) prefix_queried_tokens_ += s->log.size();
  tenants_.Charge(s->tenant, s->prompt_length - s->prompt_reached);
}

void Scheduler::Impl::Vacate(Sequence* s) {
  // Steps run in order and a plan's drops go first, so slot and blocks may be used by the very next
  // plan although rows of this sequence are in flight (invariant wire.once).
  ReleaseTables(s);
  drops_.push_back(s->slot);
  LeaveRunning(s);
  s->slot = kNoSlot;
  s->phase = Phase::kWaiting;
  s->computed = s->confirmed = 0;
  s->published_blocks = 0;
  s->kept_until = 0;
}

void Scheduler::Impl::EnterRunning(Sequence* sequence) {
  ++sequence->tenant->running;
  slots_[sequence->slot] = sequence;
  free_slots_.Erase(sequence->slot);
  const auto place = std::upper_bound(running_.begin(), running_.end(), sequence, ByTurn());
  running_.insert(place, sequence);
}

void Scheduler::Impl::LeaveRunning(Sequence* sequence) {
  --sequence->tenant->running;
  slots_[sequence->slot] = nullptr;
  free_slots_.Insert(sequence->slot);
  decoding_slots_.Erase(sequence->slot);
  const auto place = std::lower_bound(running_.begin(), running_.end(), sequence, ByTurn());
  WEFT_CHECK_EQ(*place, sequence);
  running_.erase(place);
}

}  // namespace weft::router

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
  const bool leaves_reserve = LeavesReserve(*s);
  if (leaves_reserve && config_.running_max - running_.size() <= reserve_slots_) return false;

  LookUpPrefix(s);
  const auto length = static_cast<uint32_t>(s->log.size());
  // Who comes in out of the order of arrival brings the blocks that it is kept for.
  const bool out_of_order = tenants_.active() > 1 || waiting_.HigherPriorityWaits(s->priority);
  const uint32_t kept_until =
      out_of_order ? std::min(length + config_.block_tokens, s->length_limit - 1) : 0;
  const uint32_t hits = static_cast<uint32_t>(s->table.size());
  const uint32_t needed = BlocksFor(std::max(length, kept_until)) - hits;
  const auto idle_hits =
      static_cast<uint32_t>(std::count_if(s->table.begin(), s->table.end(), [this](BlockId block) {
        return pool_.references(block) == 0;
      }));
  // Alone, any sequence may have the whole pool: so there is never a deadlock.
  const uint32_t spared =
      running_.empty() ? 0 : watermark_blocks_ + (leaves_reserve ? reserve_blocks_ : 0);
  if (needed + idle_hits + spared > pool_.free_count()) {
    s->table.clear();
    s->refused_at_freed = pool_.freed_count();
    return false;
  }
  // First the hits, so that they are not evicted for the rest.
  for (const BlockId block : s->table) pool_.Share(block);
  for (uint32_t i = 0; i < needed; ++i) s->table.push_back(pool_.Allocate());

  s->computed = s->confirmed = hits * config_.block_tokens;
  s->published_blocks = hits;
  s->kept_until = kept_until;
  waiting_.Remove(s);
  CountAdmission(s);
  s->slot = slot;
  s->phase = Phase::kPrefilling;
  s->first_chunk = true;
  EnterRunning(s);
  plan_.blocks.push_back({slot, static_cast<uint32_t>(plan_.block_ids.size()),
                          static_cast<uint32_t>(s->table.size())});
  plan_.block_ids.insert(plan_.block_ids.end(), s->table.begin(), s->table.end());
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

void Scheduler::Impl::LookUpPrefix(Sequence* s) const {
  if (!config_.prefix_cache || s->bypass_prefix_cache) return;
  // The last token is always computed: its row samples.
  const size_t hits_max = (s->log.size() - 1) / config_.block_tokens;
  const absl::Span<const TokenId> log = s->log;
  for (size_t i = 0; i < hits_max; ++i) {
    const BlockId block = cache_.Find(s->block_hashes[i],
                                      log.subspan(i * config_.block_tokens, config_.block_tokens));
    if (block == kNoBlock) return;
    s->table.push_back(block);
  }
}

void Scheduler::Impl::Vacate(Sequence* s) {
  // Steps run in order and a plan's drops go first, so slot and blocks may be used by the very next
  // plan although rows of this sequence are in flight (invariant wire.once).
  for (size_t i = s->table.size(); i-- > 0;) pool_.Release(s->table[i]);
  s->table.clear();
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

// How the parts of the scheduler's state belong together, written as checks. Slow on purpose.

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

void Scheduler::Impl::CheckInvariantsForTest() const {
  uint32_t recovering = 0;
  uint32_t suspects = 0;
  for (const auto& [id, sequence] : live_) {
    WEFT_CHECK_EQ(id, sequence->id);
    CheckSequence(*sequence);
    recovering += sequence->recovering;
    suspects += sequence->suspect();
  }
  WEFT_CHECK_EQ(recovering, recovering_);
  WEFT_CHECK_EQ(suspects, suspects_);
  WEFT_CHECK_LE(std::count_if(running_.begin(), running_.end(),
                              [](const Sequence* s) { return s->suspect(); }),
                1);
  uint32_t waiting = 0;
  waiting_.ForEach([&](const Sequence& s) {
    WEFT_CHECK(s.phase == Phase::kWaiting && &Live(s.id) == &s);
    const Sequence* const after = waiting_.After(s);
    WEFT_CHECK(after == nullptr || (s.Outranks(*after) && s.tenant == after->tenant) ||
               s.returns_first);
    ++waiting;
  });
  tenants_.CheckInvariantsForTest();
  WEFT_CHECK_LE(tenants_.active(), live_.size());
  WEFT_CHECK_EQ(waiting, waiting_.size());
  WEFT_CHECK_EQ(waiting + running_.size(), live_.size());
  for (size_t i = 0; i < running_.size(); ++i) {
    WEFT_CHECK(running_[i]->phase != Phase::kWaiting);
    WEFT_CHECK(i == 0 || running_[i - 1]->Outranks(*running_[i]));
  }
  CheckSlots();
  CheckBlocks();
  CheckInFlight();
}

void Scheduler::Impl::CheckSequence(const Sequence& s) const {
  WEFT_CHECK_LE(s.planned_length(), s.length_limit);
  WEFT_CHECK_LT(s.log.size(), s.length_limit);
  WEFT_CHECK_LE(s.samples_in_flight, s.steps_in_flight);
  WEFT_CHECK_LT(s.losses, kGroupLossesMax);
  WEFT_CHECK_EQ(s.granted, 0u);
  if (config_.prefix_cache) {
    WEFT_CHECK_EQ(s.block_hashes.size(), s.log.size() / config_.block_tokens);
  }
  if (s.phase == Phase::kWaiting) {
    WEFT_CHECK(s.slot == kNoSlot && s.computed == 0 && s.confirmed == 0);
    WEFT_CHECK(s.reach == 0 && !s.has_untold);
    for (const BlockTable& table : s.tables) WEFT_CHECK_EQ(table.end(), 0u);
    return;
  }
  WEFT_CHECK(formed_ && !s.first_chunk);
  WEFT_CHECK_EQ(slots_[s.slot], &s);
  WEFT_CHECK_LE(s.confirmed, s.computed);
  WEFT_CHECK_EQ(s.confirmed == s.computed, s.steps_in_flight == 0);
  // A decoding sequence has run everything but the token it sampled (or samples) last.
  if (s.phase == Phase::kDecoding) {
    WEFT_CHECK_EQ(s.computed + 1, s.planned_length());
    WEFT_CHECK_EQ(s.reach, BlocksFor(std::max(s.computed, s.kept_until)));
    WEFT_CHECK(decoding_slots_.Contains(s.slot));
  } else {
    WEFT_CHECK_LT(s.computed, s.log.size());
    WEFT_CHECK_EQ(s.samples_in_flight, 0u);
    WEFT_CHECK_EQ(s.reach, BlocksFor(std::max(static_cast<uint32_t>(s.log.size()), s.kept_until)));
    WEFT_CHECK(!decoding_slots_.Contains(s.slot));
  }
  if (config_.prefix_cache) {
    WEFT_CHECK_EQ(s.published_blocks, s.confirmed / config_.block_tokens);
  }
  CheckTables(s);
}

void Scheduler::Impl::CheckTables(const Sequence& s) const {
  bool has_untold = false;
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    const BlockTable& table = s.tables[group];
    has_untold |= table.untold_left() + table.untold_appended() > 0;
    WEFT_CHECK_LE(table.end(), s.reach);
    // What has run is there as far as the next row reads it, and no more than a table may hold.
    WEFT_CHECK_LE(table.first(), groups_.FirstNeeded(group, s.computed));
    WEFT_CHECK_LE(BlocksFor(s.computed), table.end());
    WEFT_CHECK_LE(table.size(), groups_.TableMax(group, s.reach));
    // A table that rolls is full.
    WEFT_CHECK(!s.rolls(table) || table.size() == groups_.TableMax(group, s.reach));
    WEFT_CHECK(groups_.has_window(group) || (table.first() == 0 && !s.rolls(table)));
    WEFT_CHECK(!groups_.has_window(group) ||
               s.next_leave <= groups_.EndOfUse(group, table.first()));
  }
  WEFT_CHECK_EQ(has_untold, s.has_untold);
}

void Scheduler::Impl::CheckSlots() const {
  size_t held = 0;
  for (Slot slot = 0; slot < config_.running_max; ++slot) {
    const bool is_held = slots_[slot] != nullptr;
    held += is_held;
    WEFT_CHECK_EQ(free_slots_.Contains(slot), formed_ && !is_held);
    WEFT_CHECK(is_held || !decoding_slots_.Contains(slot));
  }
  WEFT_CHECK_EQ(held, running_.size());
}

void Scheduler::Impl::CheckBlocks() const {
  pool_.CheckInvariantsForTest();
  cache_.CheckInvariantsForTest();
  std::vector<uint32_t> references(pool_.total(), 0);
  std::vector<uint32_t> group_of(pool_.total(), kKvGroupsMax);
  uint32_t untold = 0;
  for (const Sequence* const s : running_) {
    untold += s->has_untold;
    for (uint32_t group = 0; group < groups_.count(); ++group) {
      const BlockTable& table = s->tables[group];
      for (uint32_t i = table.first(); i < table.end(); ++i) {
        const BlockId block = table[i];
        WEFT_CHECK(references[block]++ == 0 || group_of[block] == group);
        group_of[block] = group;
        // What others may read is what this sequence has read or written, and never writes again.
        WEFT_CHECK(!cache_.Holds(block) || i < s->published_blocks);
        WEFT_CHECK(pool_.references(block) == 1 || cache_.Holds(block));
      }
    }
  }
  WEFT_CHECK_EQ(untold, untold_);
  for (BlockId block = 0; block < pool_.total(); ++block) {
    WEFT_CHECK_EQ(references[block], pool_.references(block));
  }
}

void Scheduler::Impl::CheckInFlight() const {
  WEFT_CHECK_LE(in_flight_count_, kStepsInFlightMax);
  absl::flat_hash_map<SequenceId, uint32_t> steps;
  for (uint32_t i = 0; i < in_flight_count_; ++i) {
    const StepInFlight& record = in_flight_[(oldest_in_flight_ + i) % kStepsInFlightMax];
    WEFT_CHECK_EQ(record.step, next_step_ - in_flight_count_ + i);
    WEFT_CHECK_LE(record.shape.rows + record.shape.prompt_tokens, config_.step_tokens_max);
    for (const StepRow& row : record.rows) ++steps[row.id];
  }
  for (const auto& [id, sequence] : live_) {
    WEFT_CHECK_EQ(sequence->steps_in_flight, steps[id]);
  }
}

}  // namespace weft::router

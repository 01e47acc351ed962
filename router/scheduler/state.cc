// A scheduler's state as plain data, and a scheduler that goes on from it.

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"
#include "router/scheduler/state_check.h"

namespace weft::router {
namespace {

TableState SaveTable(const BlockTable& table) {
  TableState saved;
  saved.capacity = table.capacity();
  saved.first = table.first();
  saved.end = table.end();
  saved.untold_left = table.untold_left();
  saved.untold_appended = table.untold_appended();
  saved.blocks.reserve(table.size());
  for (uint32_t i = table.first(); i < table.end(); ++i) saved.blocks.push_back(table[i]);
  return saved;
}

SequenceState SaveSequence(const Sequence& s) {
  SequenceState saved;
  saved.id = s.id;
  saved.tenant = s.tenant->index;
  saved.priority = s.priority;
  saved.turn_us = s.turn_us;
  saved.prompt_length = s.prompt_length;
  saved.length_limit = s.length_limit;
  // A replay has no ids; what it has to know is whether a token may end the sequence.
  saved.ignore_eos = s.ignore_eos && s.stop_ids.empty();
  saved.bypass_prefix_cache = s.bypass_prefix_cache;
  saved.log_tokens = static_cast<uint32_t>(s.log.size());
  saved.block_hashes = s.block_hashes;
  saved.phase = s.phase;
  saved.was_admitted = s.was_admitted;
  saved.recovering = s.recovering;
  saved.cached_tokens = s.cached_tokens;
  saved.prompt_reached = s.prompt_reached;
  saved.refused_at_freed = s.refused_at_freed;
  saved.refused_cost = s.refused_cost;
  saved.losses = s.losses;
  saved.lost_at = s.lost_at;
  saved.steps_in_flight = s.steps_in_flight;
  saved.samples_in_flight = s.samples_in_flight;
  saved.slot = s.slot;
  for (const BlockTable& table : s.tables) saved.tables.push_back(SaveTable(table));
  saved.reach = s.reach;
  saved.next_leave = s.next_leave;
  saved.has_untold = s.has_untold;
  saved.computed = s.computed;
  saved.confirmed = s.confirmed;
  saved.published_blocks = s.published_blocks;
  saved.kept_until = s.kept_until;
  return saved;
}

// The log that the hashes stand for, in label ids.
std::vector<TokenId> LabelLog(const SequenceState& saved, uint32_t block_tokens) {
  std::vector<TokenId> log(saved.log_tokens, 0);
  for (size_t i = 0; i < saved.block_hashes.size(); ++i) {
    log[(i + 1) * block_tokens - 1] = static_cast<TokenId>(saved.block_hashes[i].low);
  }
  return log;
}

void FillSequence(const SequenceState& saved, uint32_t block_tokens, Sequence* s) {
  s->id = saved.id;
  s->priority = saved.priority;
  s->turn_us = saved.turn_us;
  s->prompt_length = saved.prompt_length;
  s->length_limit = saved.length_limit;
  s->ignore_eos = saved.ignore_eos;
  s->bypass_prefix_cache = saved.bypass_prefix_cache;
  s->log = LabelLog(saved, block_tokens);
  s->block_hashes = saved.block_hashes;
  s->phase = saved.phase;
  s->was_admitted = saved.was_admitted;
  s->recovering = saved.recovering;
  s->cached_tokens = saved.cached_tokens;
  s->prompt_reached = saved.prompt_reached;
  s->refused_at_freed = saved.refused_at_freed;
  s->refused_cost = saved.refused_cost;
  s->losses = saved.losses;
  s->lost_at = saved.lost_at;
  s->steps_in_flight = saved.steps_in_flight;
  s->samples_in_flight = saved.samples_in_flight;
  s->slot = saved.slot;
  for (const TableState& from : saved.tables) {
    BlockTable& table = s->tables.emplace_back(from.capacity);
    for (uint32_t i = 0; i < from.blocks.size(); ++i) table.Note(from.first + i, from.blocks[i]);
    table.Restore(from.first, from.end, from.untold_left, from.untold_appended);
  }
  s->reach = saved.reach;
  s->next_leave = saved.next_leave;
  s->has_untold = saved.has_untold;
  s->computed = saved.computed;
  s->confirmed = saved.confirmed;
  s->published_blocks = saved.published_blocks;
  s->kept_until = saved.kept_until;
}

}  // namespace

void Scheduler::Impl::Save(SchedulerState* state) const {
  *state = {};
  state->now_us = now_us_;
  state->formed = formed_;
  state->next_step = next_step_;
  state->drops = drops_;
  for (uint32_t i = 0; i < in_flight_count_; ++i) {
    const StepInFlight& step = in_flight_[(oldest_in_flight_ + i) % kStepsInFlightMax];
    state->in_flight.push_back(
        {step.shape.rows, step.shape.prompt_tokens, step.shape.context_tokens, step.rows});
  }
  std::vector<const Sequence*> by_id;
  by_id.reserve(live_.size());
  for (const auto& [id, sequence] : live_) by_id.push_back(sequence.get());
  std::sort(by_id.begin(), by_id.end(),
            [](const Sequence* a, const Sequence* b) { return a->id < b->id; });
  state->sequences.reserve(by_id.size());
  for (const Sequence* const s : by_id) state->sequences.push_back(SaveSequence(*s));
  pool_.Save(state);
  cache_.Save(&state->published);
  tenants_.Save(state);
  cost_.Save(state);
}

absl::Status Scheduler::Impl::Restore(const SchedulerState& state) {
  WEFT_CHECK(live_.empty() && !formed_);
  if (absl::Status status = CheckState(config_, groups_, state); !status.ok()) return status;
  now_us_ = state.now_us;
  formed_ = state.formed;
  next_step_ = state.next_step;
  drops_.assign(state.drops.begin(), state.drops.end());
  SizeForPool(state.kv_blocks);
  pool_.Restore(state);
  RestorePrefixes(state.published);
  if (absl::Status status = cost_.Restore(state); !status.ok()) return status;
  if (formed_) {
    for (Slot slot = 0; slot < config_.running_max; ++slot) free_slots_.Insert(slot);
  }
  for (const SequenceState& saved : state.sequences) RestoreSequence(saved);
  for (const StepState& saved : state.in_flight) {
    StepInFlight& step = InFlight(in_flight_count_);
    step.step = next_step_ - state.in_flight.size() + in_flight_count_++;
    step.shape = {saved.rows, saved.prompt_tokens, saved.context_tokens};
    step.rows = saved.step_rows;
  }
  // Last: as the sequences came in above, their tenants began to wait.
  return tenants_.Restore(state);
}

void Scheduler::Impl::RestorePrefixes(const std::vector<PublishedBlock>& published) {
  std::vector<TokenId> ids(config_.block_tokens, 0);
  for (const PublishedBlock& block : published) {
    ids.back() = static_cast<TokenId>(block.hash.low);
    cache_.Publish(block.group, block.hash, ids, block.block);
  }
}

void Scheduler::Impl::RestoreSequence(const SequenceState& saved) {
  auto owner = std::make_unique<Sequence>();
  Sequence* const s = owner.get();
  FillSequence(saved, config_.block_tokens, s);
  // The weight follows with the tenant's state.
  s->tenant = tenants_.Enter(saved.tenant, 1);
  recovering_ += s->recovering;
  suspects_ += s->suspect();
  untold_ += s->has_untold;
  live_.emplace(s->id, std::move(owner));
  if (s->phase == Phase::kWaiting) return waiting_.Push(s);
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    const BlockTable& table = s->tables[group];
    for (uint32_t i = table.first(); i < table.end(); ++i) {
      pool_.RestoreHolder(table[i], group, s->rolls(table));
    }
  }
  EnterRunning(s);
  if (s->phase == Phase::kDecoding) decoding_slots_.Insert(s->slot);
}

}  // namespace weft::router

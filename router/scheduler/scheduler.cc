#include "router/scheduler/scheduler.h"

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/planted_bug.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

Scheduler::Impl::Impl(const SchedulerConfig& config)
    : config_(config),
      slots_(config.running_max, nullptr),
      free_slots_(config.running_max),
      decoding_slots_(config.running_max),
      cache_(config.block_tokens),
      pool_(&cache_),
      row_slots_(config.running_max) {
  WEFT_CHECK_GT(config.running_max, 0u);
  WEFT_CHECK_LE(config.running_max, kRunningMax);
  WEFT_CHECK_GE(config.step_tokens_max, config.running_max);
  WEFT_CHECK_GT(config.block_tokens, 0u);
  WEFT_CHECK(std::is_sorted(config.eos_ids.begin(), config.eos_ids.end()));
  // Everything that Plan() appends to is bounded by running_max and never grows there
  // (invariant sched.pure); block_ids depends on the pool, see OnGroupFormed().
  live_.reserve(config.waiting_max + config.running_max);
  running_.reserve(config.running_max);
  drops_.reserve(config.running_max);
  prefilling_.reserve(config.running_max);
  plan_.drops.reserve(config.running_max);
  plan_.blocks.reserve(config.running_max);
  plan_.chunks.reserve(kChunksPerStepMax);
  plan_.skip_slots.reserve(config.running_max);
  plan_.decode_slots.reserve(config.running_max);
  for (StepInFlight& step : in_flight_) step.rows.reserve(config.running_max);
}

void Scheduler::Impl::OnGroupFormed(const GroupInfo& group) {
  WEFT_CHECK(!formed_);
  formed_ = true;
  next_step_ = 1;
  for (Slot slot = 0; slot < config_.running_max; ++slot) free_slots_.Insert(slot);
  pool_.Reset(group.kv_blocks);
  watermark_blocks_ =
      static_cast<uint32_t>((uint64_t{group.kv_blocks} * config_.watermark_permille + 999) / 1000);
  cost_.Reset(group.costs);
  refused_ = 0;
  for (const auto& [id, sequence] : live_) CheckFitsPool(*sequence);
  // Per step: whole tables of the new sequences and one block for each row.
  const size_t table_blocks_max = std::min(BlocksFor(config_.context_tokens_max), group.kv_blocks);
  const size_t admissions_max = std::min(config_.running_max, kChunksPerStepMax);
  plan_.block_ids.reserve(admissions_max * table_blocks_max + config_.running_max);
}

void Scheduler::Impl::OnGroupLost(std::vector<Ended>* ended) {
  if (!formed_) return;
  formed_ = false;
  // The answers of the steps in flight will never come: their rows never happened.
  for (; in_flight_count_ > 0; --in_flight_count_) {
    for (const StepRow& row : InFlight(in_flight_count_ - 1).rows) CountLoss(row);
  }
  // Whoever ran goes before whoever waits, oldest first.
  while (!running_.empty()) {
    Sequence* const sequence = running_.back();
    Vacate(sequence);
    waiting_.PushFront(sequence);
    if (!sequence->recovering) ++recovering_;
    sequence->recovering = true;
  }
  EndLosers(ended);
  drops_.clear();
  free_slots_.Clear();
  pool_.Reset(0);
}

void Scheduler::Impl::OnArrival(const Arrival& arrival) {
  WEFT_CHECK(!arrival.prompt.empty());
  WEFT_CHECK_GT(arrival.max_new_tokens, 0u);
  WEFT_CHECK_LE(std::abs(arrival.priority), kPriorityAbsMax);
  auto& owner = live_[arrival.id];
  WEFT_CHECK(owner == nullptr);
  owner = std::make_unique<Sequence>();
  Sequence* const s = owner.get();
  s->id = arrival.id;
  s->priority = arrival.priority;
  s->arrival_number = arrivals_++;
  s->prompt_length = static_cast<uint32_t>(arrival.prompt.size());
  s->length_limit = s->prompt_length + arrival.max_new_tokens;
  WEFT_CHECK_LE(s->length_limit, config_.context_tokens_max);
  s->ignore_eos = arrival.ignore_eos;
  s->bypass_prefix_cache = arrival.bypass_prefix_cache;
  s->cache_salt = arrival.cache_salt;
  // The table grows in Plan(), which must not allocate.
  s->table.reserve(BlocksFor(s->length_limit));
  s->log.reserve(s->prompt_length + std::min(arrival.max_new_tokens, 256u));
  for (const TokenId token : arrival.prompt) AppendToLog(s, token);
  if (formed_) CheckFitsPool(*s);
  waiting_.PushBack(s);
}

void Scheduler::Impl::OnCancel(SequenceId id, std::vector<Ended>* ended) {
  Sequence* const sequence = Find(id);
  if (sequence == nullptr) return;
  if (Planted(PlantedBug::kLostCancel) && sequence->steps_in_flight > 1) return;
  End(sequence, EndReason::kCancelled, ended);
}

Sequence* Scheduler::Impl::Find(SequenceId id) {
  const auto it = live_.find(id);
  return it == live_.end() ? nullptr : it->second.get();
}

const Sequence& Scheduler::Impl::Live(SequenceId id) const {
  const auto it = live_.find(id);
  WEFT_CHECK(it != live_.end());
  return *it->second;
}

void Scheduler::Impl::CheckFitsPool(const Sequence& sequence) const {
  // Admission refuses more than the pool holds; alone, every sequence can finish. (The KV of the
  // last token is never written.)
  WEFT_CHECK_LE(BlocksFor(sequence.length_limit - 1), pool_.total());
}

void Scheduler::Impl::CaughtUp(Sequence* sequence) {
  if (!sequence->recovering) return;
  sequence->recovering = false;
  --recovering_;
}

SchedulerStats Scheduler::Impl::Stats() const {
  SchedulerStats stats;
  stats.running = static_cast<uint32_t>(running_.size());
  stats.waiting = waiting_.size();
  stats.suspects = suspects_;
  stats.blocks_total = pool_.total();
  stats.blocks_used = pool_.total() - pool_.free_count();
  stats.blocks_cached = pool_.cached_count();
  stats.preemptions = preemptions_;
  stats.prefix_queried_tokens = prefix_queried_tokens_;
  stats.prefix_hit_tokens = prefix_hit_tokens_;
  stats.evicted_blocks = pool_.evicted_count();
  return stats;
}

// -- The public face: time is an input of every event, but no decision needs it yet ---------------

Scheduler::Scheduler(const SchedulerConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Scheduler::~Scheduler() = default;

void Scheduler::OnGroupFormed(const GroupInfo& group, int64_t /*now_us*/) {
  impl_->OnGroupFormed(group);
}
void Scheduler::OnGroupLost(int64_t /*now_us*/, std::vector<Ended>* ended) {
  impl_->OnGroupLost(ended);
}
void Scheduler::OnArrival(const Arrival& arrival, int64_t /*now_us*/) { impl_->OnArrival(arrival); }
void Scheduler::OnCancel(SequenceId id, int64_t /*now_us*/, std::vector<Ended>* ended) {
  impl_->OnCancel(id, ended);
}
void Scheduler::OnStepDone(StepNumber step, absl::Span<const SampledRow> rows, const StepTime& time,
                           int64_t /*now_us*/, std::vector<Emitted>* emitted,
                           std::vector<Ended>* ended) {
  impl_->OnStepDone(step, rows, time, emitted, ended);
}
const StepPlan* Scheduler::Plan(int64_t /*now_us*/) { return impl_->Plan(); }

absl::Span<const TokenId> Scheduler::Log(SequenceId id) const { return impl_->Live(id).log; }
uint32_t Scheduler::PromptLength(SequenceId id) const { return impl_->Live(id).prompt_length; }
uint32_t Scheduler::CachedTokens(SequenceId id) const { return impl_->Live(id).cached_tokens; }
bool Scheduler::IsLive(SequenceId id) const { return impl_->IsLive(id); }
bool Scheduler::IsSuspectForTest(SequenceId id) const { return impl_->Live(id).suspect(); }
SchedulerStats Scheduler::Stats() const { return impl_->Stats(); }
void Scheduler::CheckInvariantsForTest() const { impl_->CheckInvariantsForTest(); }

}  // namespace weft::router

#include "router/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {
namespace {

// One part in so many of the slots and of the pool is left to tenants that hold less than their
// share of the slots.
constexpr uint32_t kReserveShare = 16;

// What an event appended.
template <typename T>
absl::Span<const T> From(const std::vector<T>& records, size_t before) {
  return absl::MakeConstSpan(records).subspan(before);
}

}  // namespace

Scheduler::Impl::Impl(const SchedulerConfig& config)
    : config_(config),
      groups_(config.kv_windows, config.block_tokens, config.step_tokens_max),
      hasher_(config.hash_key, config.block_tokens, config.label_ids),
      waiting_(&tenants_),
      slots_(config.running_max, nullptr),
      free_slots_(config.running_max),
      decoding_slots_(config.running_max),
      cache_(config.block_tokens),
      pool_(&cache_),
      reserve_slots_(config.running_max / kReserveShare),
      row_slots_(config.running_max) {
  WEFT_CHECK_GT(config.running_max, 0u);
  WEFT_CHECK_LE(config.running_max, kRunningMax);
  WEFT_CHECK_GE(config.step_tokens_max, config.running_max);
  WEFT_CHECK_GT(config.block_tokens, 0u);
  WEFT_CHECK_GE(config.ageing_us, 0);
  WEFT_CHECK(std::is_sorted(config.eos_ids.begin(), config.eos_ids.end()));
  // Everything that Plan() appends to is bounded by running_max and never grows there
  // (invariant sched.pure); block_ids depends on the pool, see OnGroupFormed().
  live_.reserve(config.waiting_max + config.running_max);
  running_.reserve(config.running_max);
  drops_.reserve(config.running_max);
  prefilling_.reserve(config.running_max);
  plan_.drops.reserve(config.running_max);
  plan_.blocks.reserve(size_t{config.running_max} * groups_.count());
  plan_.chunks.reserve(kChunksPerStepMax);
  plan_.skip_slots.reserve(config.running_max);
  plan_.decode_slots.reserve(config.running_max);
  for (StepInFlight& step : in_flight_) step.rows.reserve(config.running_max);
}

void Scheduler::Impl::Advance(int64_t now_us) {
  now_us_ = std::max(now_us_, now_us);
  tenants_.ForgetIdle(now_us_);
}

void Scheduler::Impl::OnGroupFormed(const GroupInfo& group, std::vector<Ended>* ended) {
  WEFT_CHECK(!formed_);
  formed_ = true;
  next_step_ = 1;
  for (Slot slot = 0; slot < config_.running_max; ++slot) free_slots_.Insert(slot);
  pool_.Reset(group.kv_blocks);
  cost_.Reset(group.costs);
  SizeForPool(group.kv_blocks);
  EndWhoFitsNoMore(ended);
}

void Scheduler::Impl::SizeForPool(uint32_t kv_blocks) {
  watermark_blocks_ =
      static_cast<uint32_t>((uint64_t{kv_blocks} * config_.watermark_permille + 999) / 1000);
  reserve_blocks_ = reserve_slots_ > 0 ? kv_blocks / kReserveShare : 0;
  // Per step: whole tables of the new sequences, which may share blocks, and no block is taken
  // twice.
  const uint64_t tables_blocks_max =
      std::min<uint64_t>(groups_.SequenceMax(BlocksFor(config_.context_tokens_max)), kv_blocks);
  const size_t admissions_max = std::min(config_.running_max, kChunksPerStepMax);
  plan_.block_ids.reserve(admissions_max * tables_blocks_max + kv_blocks);
}

void Scheduler::Impl::OnGroupLost(std::vector<Ended>* ended) {
  if (!formed_) return;
  formed_ = false;
  // The answers of the steps in flight will never come: their rows never happened.
  for (; in_flight_count_ > 0; --in_flight_count_) {
    for (const StepRow& row : InFlight(in_flight_count_ - 1).rows) CountLoss(row);
  }
  // Whoever ran goes before whoever waits.
  while (!running_.empty()) {
    Sequence* const sequence = running_.back();
    Vacate(sequence);
    if (!sequence->recovering) ++recovering_;
    sequence->recovering = true;
    waiting_.Push(sequence);
  }
  EndLosers(ended);
  drops_.clear();
  free_slots_.Clear();
  pool_.Reset(0);
}

void Scheduler::Impl::OnCancel(SequenceId id, std::vector<Ended>* ended) {
  Sequence* const sequence = Find(id);
  if (sequence == nullptr) return;
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

void Scheduler::Impl::EndWhoFitsNoMore(std::vector<Ended>* ended) {
  std::vector<Sequence*> too_long;
  for (const auto& [id, sequence] : live_) {
    if (!FitsPool(sequence->length_limit)) too_long.push_back(sequence.get());
  }
  // The map's order is not that of the events.
  std::sort(too_long.begin(), too_long.end(), ByTurn());
  for (Sequence* const sequence : too_long) End(sequence, EndReason::kPoolShrank, ended);
}

uint64_t Scheduler::Impl::TokensIn(uint32_t kv_blocks) const {
  // A pool that holds the longest context of a model that sees only windows holds any.
  constexpr uint32_t kBlocksMax = 1u << 31;
  return uint64_t{groups_.LongestIn(kv_blocks, kBlocksMax)} * config_.block_tokens;
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
  stats.blocks_used = pool_.used_count();
  stats.blocks_cached = pool_.cached_count();
  stats.kv_groups = groups_.count();
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    stats.group_blocks_used[group] = pool_.used_in(group);
    stats.group_blocks_cached[group] = pool_.cached_in(group);
  }
  stats.preemptions = preemptions_;
  stats.tenants = tenants_.size();
  stats.prompts_hashed_here = prompts_hashed_here_;
  stats.prefix_queried_tokens = prefix_queried_tokens_;
  stats.prefix_hit_tokens = prefix_hit_tokens_;
  stats.evicted_blocks = pool_.evicted_count();
  return stats;
}

// -- The public face -----------------------------------------------------------------------------

Scheduler::Scheduler(const SchedulerConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Scheduler::~Scheduler() = default;

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Restore(const SchedulerConfig& config,
                                                              const SchedulerState& state) {
  auto scheduler = std::make_unique<Scheduler>(config);
  if (absl::Status status = scheduler->impl_->Restore(state); !status.ok()) return status;
  return scheduler;
}

void Scheduler::OnGroupFormed(const GroupInfo& group, int64_t now_us, std::vector<Ended>* ended) {
  const size_t before = ended->size();
  impl_->Advance(now_us);
  impl_->OnGroupFormed(group, ended);
  if (tap_ != nullptr) tap_->OnGroupFormed(group, now_us, From(*ended, before));
}
void Scheduler::OnGroupLost(int64_t now_us, std::vector<Ended>* ended) {
  const size_t before = ended->size();
  impl_->Advance(now_us);
  impl_->OnGroupLost(ended);
  if (tap_ != nullptr) tap_->OnGroupLost(now_us, From(*ended, before));
}
absl::Status Scheduler::OnArrival(Arrival arrival, int64_t now_us) {
  const auto prompt_tokens = static_cast<uint32_t>(arrival.prompt.ids().size());
  impl_->Advance(now_us);
  const absl::Status status = impl_->OnArrival(arrival);
  if (tap_ != nullptr) tap_->OnArrival(arrival, prompt_tokens, now_us, status);
  return status;
}
absl::Status Scheduler::CutLimit(SequenceId id, uint32_t tokens_max, int64_t now_us) {
  impl_->Advance(now_us);
  const absl::Status status = impl_->CutLimit(id, tokens_max);
  if (tap_ != nullptr) tap_->OnCutLimit(id, tokens_max, now_us, status);
  return status;
}
void Scheduler::OnCancel(SequenceId id, int64_t now_us, std::vector<Ended>* ended) {
  const size_t before = ended->size();
  impl_->Advance(now_us);
  impl_->OnCancel(id, ended);
  if (tap_ != nullptr) tap_->OnCancel(id, now_us, From(*ended, before));
}
void Scheduler::OnFlush(int64_t now_us) {
  impl_->Advance(now_us);
  impl_->OnFlush();
  if (tap_ != nullptr) tap_->OnFlush(now_us);
}
void Scheduler::OnStepDone(StepNumber step, absl::Span<const SampledRow> rows, const StepTime& time,
                           int64_t now_us, std::vector<Emitted>* emitted,
                           std::vector<Ended>* ended) {
  const size_t emitted_before = emitted->size();
  const size_t ended_before = ended->size();
  impl_->Advance(now_us);
  impl_->OnStepDone(step, rows, time, emitted, ended);
  if (tap_ == nullptr) return;
  tap_->OnStepDone(step, time, now_us, From(*emitted, emitted_before), From(*ended, ended_before));
}
const StepPlan* Scheduler::Plan(int64_t now_us) {
  impl_->Advance(now_us);
  const StepPlan* const plan = impl_->Plan();
  if (tap_ != nullptr) tap_->OnPlan(plan, now_us);
  return plan;
}

absl::Span<const TokenId> Scheduler::Log(SequenceId id) const { return impl_->Live(id).log; }
absl::Span<const BlockHash> Scheduler::BlockHashes(SequenceId id) const {
  return impl_->Live(id).block_hashes;
}
void Scheduler::Save(SchedulerState* state) const { impl_->Save(state); }
uint32_t Scheduler::PromptLength(SequenceId id) const { return impl_->Live(id).prompt_length; }
uint32_t Scheduler::CachedTokens(SequenceId id) const { return impl_->Live(id).cached_tokens; }
bool Scheduler::IsLive(SequenceId id) const { return impl_->IsLive(id); }
const PrefixHasher& Scheduler::prefix_hasher() const { return impl_->hasher(); }
uint64_t Scheduler::TokensIn(uint32_t kv_blocks) const { return impl_->TokensIn(kv_blocks); }
bool Scheduler::IsSuspectForTest(SequenceId id) const { return impl_->Live(id).suspect(); }
bool Scheduler::IsKeptForTest(SequenceId id) const { return impl_->Live(id).kept(); }
double Scheduler::ServedForTest(SequenceId id) const { return impl_->Live(id).tenant->served; }
SchedulerStats Scheduler::Stats() const { return impl_->Stats(); }
void Scheduler::CheckInvariantsForTest() const { impl_->CheckInvariantsForTest(); }

}  // namespace weft::router

// The answer to a step: what was computed is confirmed and published, what was sampled is appended.

#include <algorithm>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

void Scheduler::Impl::OnStepDone(StepNumber step, absl::Span<const SampledRow> rows,
                                 const StepTime& time, std::vector<Emitted>* emitted,
                                 std::vector<Ended>* ended) {
  WEFT_CHECK_GT(in_flight_count_, 0u);
  const StepInFlight& record = InFlight(0);
  WEFT_CHECK_EQ(step, record.step);
  cost_.Observe(record.shape, time.device_us);
  uint32_t answered = 0;
  for (const StepRow& row : record.rows) {
    const SampledRow* sampled = nullptr;
    if (row.samples) {
      WEFT_CHECK_LT(answered, rows.size());
      sampled = &rows[answered++];
      WEFT_CHECK_EQ(sampled->slot, row.slot);
    }
    // Cancelled, or ended by the step before: the row was in vain (invariant ahead.count).
    Sequence* const s = Find(row.id);
    if (s == nullptr) continue;
    --s->steps_in_flight;
    // It got beyond what the lost steps were to reach.
    if (s->losses > 0 && row.kv_end > s->lost_at) Acquit(s);
    // A preempted sequence has lost its blocks but not its token. (It was not admitted again: that
    // waits for this answer.)
    if (s->phase != Phase::kWaiting) ConfirmKv(s, row.kv_end);
    if (sampled == nullptr) continue;
    --s->samples_in_flight;
    emitted->push_back({s->id, sampled->token, answered - 1});
    Append(s, sampled->token, ended);
  }
  WEFT_CHECK_EQ(answered, rows.size());
  oldest_in_flight_ = (oldest_in_flight_ + 1) % kStepsInFlightMax;
  --in_flight_count_;
}

void Scheduler::Impl::ConfirmKv(Sequence* s, Position kv_end) {
  s->confirmed = kv_end;
  if (!config_.prefix_cache) return;
  const absl::Span<const TokenId> log = s->log;
  for (; (s->published_blocks + 1) * config_.block_tokens <= s->confirmed; ++s->published_blocks) {
    const uint32_t i = s->published_blocks;
    const auto ids = log.subspan(i * config_.block_tokens, config_.block_tokens);
    for (uint32_t group = 0; group < groups_.count(); ++group) {
      // One that had to leave before its KV was written belongs to somebody else by now.
      if (!s->tables[group].Covers(i)) continue;
      cache_.Publish(group, s->block_hashes[i], ids, s->tables[group][i]);
    }
  }
}

void Scheduler::Impl::Append(Sequence* s, TokenId token, std::vector<Ended>* ended) {
  AppendToLog(s, token);
  tenants_.Charge(s->tenant, 1);
  const auto in = [token](const std::vector<TokenId>& ids) {
    return std::binary_search(ids.begin(), ids.end(), token);
  };
  if ((!s->ignore_eos && in(config_.eos_ids)) || in(s->stop_ids)) {
    End(s, EndReason::kEosToken, ended);
  } else if (s->log.size() == s->length_limit) {
    End(s, EndReason::kLength, ended);
  }
}

void Scheduler::Impl::AppendToLog(Sequence* s, TokenId token) {
  s->log.push_back(token);
  if (!config_.prefix_cache || s->log.size() % config_.block_tokens != 0) return;
  s->block_hashes.push_back(hasher_.Next(s->cache_salt, s->block_hashes,
                                         absl::MakeConstSpan(s->log).last(config_.block_tokens)));
}

void Scheduler::Impl::End(Sequence* s, EndReason reason, std::vector<Ended>* ended) {
  ended->push_back({s->id, reason});
  CaughtUp(s);
  Acquit(s);
  if (s->phase == Phase::kWaiting) {
    waiting_.Remove(s);
  } else {
    Vacate(s);
  }
  // The part of its prompt that was charged and never computed.
  if (s->was_admitted) {
    tenants_.Charge(s->tenant, int64_t{s->prompt_reached} - s->prompt_length);
  }
  tenants_.Leave(s->tenant, now_us_);
  // Rows still in flight find nobody under this id (invariant end.once).
  live_.erase(s->id);
}

}  // namespace weft::router

// The part of the engine loop that makes its group one among several: it says how the group stands
// and what tenants were served, and hands back what it cannot begin. Of a single group all of it is
// silent.

#include <algorithm>
#include <utility>

#include "router/engine/loop.h"
#include "router/engine/outcome.h"

namespace weft::router {
TenantNews& EngineLoop::NewsOf(const Answer& answer) {
  TenantNews& news = news_[answer.tenant()->index];
  news.tenant = answer.tenant()->index;
  return news;
}

void EngineLoop::NoteArrival(const PreparedRequest& request, const Answer& answer) {
  if (!shares_work()) return;
  const uint32_t prefill_tokens = request.prefill_tokens();
  unplanned_tokens_ += prefill_tokens;
  if (request.follows) {
    // Nobody handed it out: its tenant has not been charged for it.
    TenantNews& news = NewsOf(answer);
    news.tokens += prefill_tokens;
    ++news.came;
    return;
  }
  ++arrived_;
  arrived_tokens_ += prefill_tokens;
}

void EngineLoop::NotePlanned(Live* live) {
  live->prompt_reached = live->cached_tokens;
  if (!shares_work()) return;
  unplanned_tokens_ -= live->request->prefill_tokens();
  NewsOf(*live->answer).tokens -= live->cached_tokens;
}

void EngineLoop::NoteEnd(const PreparedRequest& request, const Answer& answer, uint32_t reached) {
  if (!shares_work()) return;
  if (request.times.planned_us == 0) unplanned_tokens_ -= request.prefill_tokens();
  TenantNews& news = NewsOf(answer);
  news.tokens -= int64_t{request.prefill_tokens()} - reached;
  ++news.ended;
}

bool EngineLoop::GiveBack(std::unique_ptr<PreparedRequest>* request) {
  const uint32_t prefill_tokens = (*request)->prefill_tokens();
  if (!owner_->GiveBack(options_.group, std::move(*request))) return false;
  unplanned_tokens_ -= prefill_tokens;
  report_.serving = false;  // as it is taken to be from now on
  return true;
}

void EngineLoop::GiveBackUnplanned(int64_t now_us) {
  for (const SequenceId id : LiveIds()) {
    Live& live = live_.at(id);
    PreparedRequest& request = *live.request;
    // A choice that follows another one stays with it.
    if (request.times.planned_us > 0 || request.follows) continue;
    const absl::Span<const TokenId> ids = scheduler_->Log(id);
    request.prompt = scheduler_->prefix_hasher().Hash({ids.begin(), ids.end()},
                                                      live.answer->tenant()->cache_salt);
    scheduler_->OnCancel(id, now_us, &ended_);
    ForgetDeadlines(id, request);
    if (GiveBack(&live.request)) {
      ended_.clear();
      live_.erase(id);
    } else {
      live.failure = ServerStopping();
      EndLives();
    }
  }
}

void EngineLoop::Report() {
  GroupReport report = report_;
  report.serving = group_->state() == GroupState::kServing && !stopping_;
  report.request_tokens_max = request_tokens_max_;
  report.waiting_tokens = unplanned_tokens_;
  report.arrived = arrived_;
  report.arrived_tokens = arrived_tokens_;
  if (scheduler_ != nullptr) {
    const SchedulerStats stats = scheduler_->Stats();
    report.running = stats.running;
    report.waiting = stats.waiting;
    const auto tokens_in = [&](uint32_t blocks) {
      return uint64_t{blocks} / std::max(stats.kv_groups, 1u) * report.block_tokens;
    };
    report.pool_tokens = tokens_in(stats.blocks_total);
    report.free_tokens = tokens_in(stats.blocks_total - stats.blocks_used);
  }
  if (report == report_ && news_.empty()) return;
  report_ = report;
  news_list_.clear();
  for (const auto& [tenant, news] : news_) news_list_.push_back(news);
  news_.clear();
  owner_->Report(options_.group, report_, news_list_);
}

}  // namespace weft::router

// The part of the engine loop that ends requests: each leaves the scheduler once, and its answer
// gets its last word either here, while its stream has not begun, or from text out.

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "router/engine/loop.h"
#include "router/engine/outcome.h"
#include "router/errors.h"
#include "router/observe/request_trace.h"

namespace weft::router {
namespace {

FinishReason ToFinish(EndReason reason) {
  return reason == EndReason::kEosToken ? FinishReason::kEosToken : FinishReason::kLength;
}

}  // namespace

std::vector<SequenceId> EngineLoop::LiveIds() const {
  std::vector<SequenceId> ids;
  ids.reserve(live_.size());
  for (const auto& [id, live] : live_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

void EngineLoop::Fail(SequenceId sequence, const absl::Status& why, int64_t now_us) {
  live_.at(sequence).failure = why;
  scheduler_->OnCancel(sequence, now_us, &ended_);
  EndLives();
}

void EngineLoop::FailAll(const absl::Status& why, int64_t now_us) {
  for (const SequenceId id : LiveIds()) Fail(id, why, now_us);
}

void EngineLoop::StopAll(const absl::Status& why, int64_t now_us) {
  for (const SequenceId id : LiveIds()) live_.at(id).answer->Cancel(CancelReason::kAdmin);
  FailAll(why, now_us);
}

void EngineLoop::EndLives() {
  for (const Ended& ended : ended_) {
    auto node = live_.extract(ended.id);
    WEFT_CHECK(!node.empty());
    Live& live = node.mapped();
    PreparedRequest& request = *live.request;
    ForgetDeadlines(ended.id, request);
    if (live.constraint != nullptr) masked_steps_.Free(ended.id);
    Promote(request);
    NoteEnd(request, *live.answer, live.prompt_reached);
    TracePoint(TimelineKind::kEnded, live, request.times.first_token_us, clock_->NowUs());
    if (RequestTrace* const trace = live.answer->trace().get()) {
      trace->prepared_us = request.times.prepared_us;
      trace->planned_us = request.times.planned_us;
      trace->first_token_us = request.times.first_token_us;
      trace->cached_tokens = live.cached_tokens;
    }
    absl::Status failure = live.failure;
    const bool complete =
        ended.reason == EndReason::kLength || ended.reason == EndReason::kEosToken;
    // What is cancelled ends there and then, so no step can complete it afterwards.
    WEFT_CHECK(!complete || failure.ok());
    if (!complete && failure.ok()) {
      failure = absl::InternalError("the scheduler gave the request up unasked");
    }
    if (live.begun) {
      const FinishReason reason =
          request.prompt_only ? FinishReason::kLength : ToFinish(ended.reason);
      outbox_[request.text_worker].ends.push_back({ended.id, failure, reason});
    } else {
      Refuse(request, failure);
    }
  }
  ended_.clear();
}

void EngineLoop::EndResumed(std::unique_ptr<PreparedRequest> request, int64_t now_us) {
  const SequenceId sequence = request->writer.answer().sequence();
  const FinishReason reason = *request->resumed_end;
  StreamBatch& batch = outbox_[request->text_worker];
  request->times.planned_us = request->times.first_token_us = now_us;
  Live live;
  live.prompt_tokens = request->prompt_tokens;
  live.request = std::move(request);
  BeginStream(sequence, live, &batch);
  batch.ends.push_back({sequence, absl::OkStatus(), reason});
}

void EngineLoop::Promote(PreparedRequest& request) {
  if (request.followers.empty()) return;
  std::unique_ptr<PreparedRequest> next = std::move(request.followers.front());
  request.followers.erase(request.followers.begin());
  next->followers = std::exchange(request.followers, {});
  released_.push_back(std::move(next));
}

void EngineLoop::ForgetDeadlines(SequenceId sequence, const PreparedRequest& request) {
  if (request.deadline_us > 0) deadlines_.erase({request.deadline_us, sequence});
  if (options_.queue_timeout_us > 0) {
    queue_deadlines_.erase({request.times.arrival_us + options_.queue_timeout_us, sequence});
  }
}

void EngineLoop::Refuse(PreparedRequest& request, const absl::Status& failure) {
  const CancelPhase phase =
      request.times.planned_us == 0 ? CancelPhase::kQueue : CancelPhase::kPrefill;
  CountUnfinished(request.writer.answer(), phase, failure, probe_);
  request.writer.Fail(failure);
}

}  // namespace weft::router

#include "router/engine/loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"
#include "router/engine/outcome.h"
#include "router/errors.h"
#include "router/observe/request_trace.h"

namespace weft::router {
namespace {

// How long a stopping router waits for shards to leave, so that the next one finds them READY.
constexpr int64_t kLeaveWaitUs = 500'000;
constexpr absl::Duration kComeBack = absl::Seconds(2);

absl::Status NotReady() {
  return UnavailableError("LOADING", "the shards are loading the model", kComeBack);
}

// Replies that may wait for the loop beside other events: far more than all shards' calls in
// flight.
constexpr size_t kRepliesMax = 16'384;

int64_t Earlier(int64_t a, int64_t b) { return b > 0 ? std::min(a, b) : a; }

}  // namespace

EngineLoop::EngineLoop(EngineLoopOptions options, GroupOwner* owner, Probe* probe, Runtime runtime)
    : options_(std::move(options)),
      owner_(owner),
      probe_(probe),
      runtime_(std::move(runtime)),
      clock_(runtime_.clock),
      queue_(kEngineEventsMax + kRepliesMax),
      poller_(runtime_.make_poller(clock_)) {
  owner_->Close(options_.group, NotReady());
}

EngineLoop::~EngineLoop() { Stop(); }

absl::Status EngineLoop::Start(const ClientFactory& make_clients, StreamSink* text,
                               MaskMaker* mask_maker, ShardRestarter* restarter,
                               Recorder* recorder) {
  text_ = text;
  mask_maker_ = mask_maker;
  recorder_ = recorder;
  outbox_.resize(text->workers());
  ShardGroupOptions group_options;
  group_options.health.hang_timeout_ms = options_.hang_timeout_ms;
  group_options.health.read_cpu = runtime_.read_cpu;
  group_options.health.first_rank = options_.first_rank;
  group_options.group = options_.group;
  if (shares_work()) group_options.name = absl::StrCat(options_.group);
  group_options.check_model = [this](const weft::shard::v1::InfoResponse& info) {
    return owner_->CheckModel(options_.group, info);
  };
  group_options.router_id = runtime_.random_id();
  group_options.model = options_.model;
  group_options.launcher = options_.launcher;
  auto sink = [this](ShardReply reply) {
    // They have room of their own: only a closed queue refuses one.
    WEFT_CHECK(queue_.TryPush(Event(std::move(reply))) || queue_.closed());
    poller_->Wake();
  };
  WEFT_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<ShardClient>> clients,
                        make_clients(sink, poller_.get()));
  group_ = std::make_unique<ShardGroup>(group_options, std::move(clients), restarter, probe_, this);
  loop_ = runtime_.executor->Start(
      shares_work() ? absl::StrCat("engine-", options_.group) : "engine",
      [this](bool) { return Turn(); }, /*nice=*/0);
  return absl::OkStatus();
}

void EngineLoop::BeginStop() {
  if (loop_ == nullptr || stop_asked_) return;
  stop_asked_ = Push(StopEvent{});
}

void EngineLoop::Stop() {
  if (loop_ == nullptr) return;
  BeginStop();
  loop_->Join();
  loop_.reset();
  queue_.Close();
  group_.reset();  // waits for the replies in flight
}

// -- From any thread -----------------------------------------------------------------------------

bool EngineLoop::Push(Event&& event) {
  // What comes at the same moment on other threads may pass this bound, by one event each.
  if (queue_.size() >= kEngineEventsMax || !queue_.TryPush(std::move(event))) return false;
  poller_->Wake();
  return true;
}

bool EngineLoop::Arrive(std::unique_ptr<PreparedRequest>&& request) {
  Event event(std::move(request));
  if (Push(std::move(event))) return true;
  request = std::move(std::get<std::unique_ptr<PreparedRequest>>(event));
  return false;
}

void EngineLoop::CancelSequence(SequenceId sequence) {
  if (Push(CancelEvent{sequence})) return;
  // Full only when this thread falls behind a flood; the cause stands in the answer.
  lost_cancel_.store(true, std::memory_order_release);
  poller_->Wake();
}

bool EngineLoop::FlushPrefixCache() { return Push(FlushEvent{}) || queue_.closed(); }

void EngineLoop::ShardDied(const ShardDeath& death) { Push(ShardDeath(death)); }

void EngineLoop::EndAllAt(int64_t deadline_us) {
  draining_.store(true, std::memory_order_release);
  Push(DrainEvent{deadline_us});
}

ServerStatus EngineLoop::Status() const {
  ServerStatus status;
  {
    absl::MutexLock lock(&mutex_);
    status = status_;
  }
  if (draining_.load(std::memory_order_acquire)) status.state = ServerState::kDraining;
  const int64_t since_us = idle_since_us_.load(std::memory_order_acquire);
  status.stalled_us = since_us > 0 ? std::max<int64_t>(clock_->NowUs() - since_us, 0) : 0;
  return status;
}

ServedShape EngineLoop::Shape() const {
  absl::MutexLock lock(&mutex_);
  return shape_;
}

std::optional<PrefixHasher> EngineLoop::prefix_hasher() const {
  absl::MutexLock lock(&mutex_);
  return prefix_hasher_;
}

// -- Thread --------------------------------------------------------------------------------------

LoopState EngineLoop::Turn() {
  TimelineScope turn(&probe_->timeline(), clock_, TimelineKind::kTurn, options_.group);
  std::vector<Event> events = queue_.PopAll(absl::ZeroDuration());
  const int64_t now_us = clock_->NowUs();
  for (Event& event : events) Handle(event, now_us);
  if (lost_cancel_.exchange(false, std::memory_order_acq_rel)) FindLostCancels(now_us);
  const int64_t wake_us = OnTimers(now_us);
  ReleaseFollowers(now_us);
  // Steps first: the shards come before the readers.
  PumpSteps();
  SendMasks();
  FlushText();
  Publish(now_us);
  turn.End();
  if (!stopping_ || (group_->leaving() && clock_->NowUs() < leave_by_us_)) {
    poller_->Wait(wake_us);
    return LoopState::kIdle;
  }
  queue_.Close();
  for (Event& event : queue_.PopAll(absl::ZeroDuration())) Handle(event, clock_->NowUs());
  ReleaseFollowers(clock_->NowUs());
  FlushText();
  return LoopState::kEnded;
}

void EngineLoop::Handle(Event& event, int64_t now_us) {
  if (auto* reply = std::get_if<ShardReply>(&event)) {
    group_->OnReply(std::move(*reply), now_us);
  } else if (auto* request = std::get_if<std::unique_ptr<PreparedRequest>>(&event)) {
    OnArrival(std::move(*request), now_us);
  } else if (auto* masks = std::get_if<MadeMasks>(&event)) {
    OnMasks(std::move(*masks), now_us);
  } else if (auto* cancel = std::get_if<CancelEvent>(&event)) {
    OnCancel(cancel->sequence, now_us);
  } else if (auto* death = std::get_if<ShardDeath>(&event)) {
    group_->OnShardDied(*death, now_us);
  } else if (std::holds_alternative<FlushEvent>(event)) {
    OnFlush(now_us);
  } else if (auto* drain = std::get_if<DrainEvent>(&event)) {
    end_all_us_ = Earlier(drain->deadline_us, end_all_us_);
  } else if (!stopping_) {
    stopping_ = true;
    StopAll(ServerStopping(), now_us);
    group_->Leave(now_us);
    leave_by_us_ = now_us + kLeaveWaitUs;
  }
}

void EngineLoop::OnArrival(std::unique_ptr<PreparedRequest> request, int64_t now_us) {
  const std::shared_ptr<Answer> answer = request->writer.shared_answer();
  NoteArrival(*request, *answer);
  const auto refuse = [&](const absl::Status& why) {
    NoteEnd(*request, *answer, 0);
    Promote(*request);
    Refuse(*request, why);
  };
  if (const CancelReason reason = answer->cancelled(); reason != CancelReason::kNone) {
    return refuse(CancelStatus(reason));
  }
  if (stopping_ || scheduler_ == nullptr) {
    return refuse(ServerStopping());
  }
  if (request->resumed_end.has_value()) {
    NoteEnd(*request, *answer, 0);
    return EndResumed(std::move(request), now_us);
  }
  // It was sent before the loss of this group was heard of.
  if (shares_work() && !request->follows && group_->state() != GroupState::kServing) {
    if (GiveBack(&request)) return;
    return refuse(ServerStopping());
  }
  std::shared_ptr<PromptScores> scores;
  if (request->prompt_logprobs.has_value()) {
    scores = std::make_shared<PromptScores>(request->prompt.ids().first(request->prompt_tokens),
                                            *request->prompt_logprobs, answer->token_table());
  }
  if (absl::Status status = Schedule(request.get(), now_us); !status.ok()) return refuse(status);
  if (request->deadline_us > 0) deadlines_.emplace(request->deadline_us, answer->sequence());
  if (options_.queue_timeout_us > 0) {
    queue_deadlines_.emplace(request->times.arrival_us + options_.queue_timeout_us,
                             answer->sequence());
  }
  Live& live = live_[answer->sequence()];
  live.scores = std::move(scores);
  live.prompt_tokens = request->prompt_tokens;
  live.constraint = request->constraint;
  live.request = std::move(request);
  live.answer = answer;
  TracePoint(TimelineKind::kArrived, live, live.request->times.arrival_us, now_us);
}

void EngineLoop::ReleaseFollowers(int64_t now_us) {
  // One that cannot be run lets the next one go.
  while (!released_.empty()) {
    std::vector<std::unique_ptr<PreparedRequest>> released = std::exchange(released_, {});
    for (std::unique_ptr<PreparedRequest>& request : released)
      OnArrival(std::move(request), now_us);
  }
}

absl::Status EngineLoop::Schedule(PreparedRequest* request, int64_t now_us) {
  const Answer& answer = request->writer.answer();
  Arrival arrival;
  arrival.id = answer.sequence();
  arrival.prompt = std::move(request->prompt);
  // To the scheduler what was there before is prompt: it is prefilled, and nothing is sampled for
  // it.
  arrival.max_new_tokens = request->max_new_tokens - request->resumed_tokens();
  arrival.tenant = answer.tenant()->index;
  arrival.tenant_weight = answer.tenant()->limits.weight;
  arrival.priority = request->priority;
  arrival.ignore_eos = request->ignore_eos;
  arrival.stop_ids = request->stop_token_ids;
  // What is found in the cache runs through no model, and so is not scored.
  arrival.bypass_prefix_cache = request->prompt_logprobs.has_value();
  const absl::Status status = scheduler_->OnArrival(std::move(arrival), now_us);
  // It was accepted under a larger pool than the shards came back with.
  if (absl::IsResourceExhausted(status)) {
    return UnavailableError("POOL_SHRANK", status.message(), kComeBack);
  }
  return status;
}

void EngineLoop::OnCancel(SequenceId sequence, int64_t now_us) {
  const auto it = live_.find(sequence);
  if (it == live_.end()) return;  // ended just before, or on its way here
  Fail(sequence, CancelStatus(it->second.answer->cancelled()), now_us);
}

void EngineLoop::OnFlush(int64_t now_us) {
  if (scheduler_ == nullptr) return;
  const uint32_t blocks = scheduler_->Stats().blocks_cached;
  scheduler_->OnFlush(now_us);
  WEFT_LOG_INFO("{}the prefix cache was flushed: {} blocks",
                shares_work() ? absl::StrCat("group ", options_.group, ": ") : "", blocks);
}

void EngineLoop::FindLostCancels(int64_t now_us) {
  for (const SequenceId id : LiveIds()) {
    if (live_.at(id).answer->cancelled() != CancelReason::kNone) OnCancel(id, now_us);
  }
}

void EngineLoop::EndLate(int64_t now_us) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const SequenceId sequence = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    live_.at(sequence).answer->Cancel(CancelReason::kDeadline);
    OnCancel(sequence, now_us);
  }
  while (!queue_deadlines_.empty() && queue_deadlines_.begin()->first <= now_us) {
    const SequenceId sequence = queue_deadlines_.begin()->second;
    queue_deadlines_.erase(queue_deadlines_.begin());
    live_.at(sequence).answer->Cancel(CancelReason::kQueueTimeout);
    OnCancel(sequence, now_us);
  }
}

int64_t EngineLoop::OnTimers(int64_t now_us) {
  EndLate(now_us);
  if (end_all_us_ > 0 && now_us >= end_all_us_) {
    StopAll(UnavailableError("DRAINING", "the server shut down before the answer was complete",
                             kComeBack),
            now_us);
  }
  const int64_t give_up_us = lost_us_ > 0 ? lost_us_ + options_.recovery_timeout_us : 0;
  if (give_up_us > 0 && now_us >= give_up_us) {
    FailAll(UnavailableError(
                "GROUP_LOST",
                absl::StrCat("the shards did not come back within ",
                             options_.recovery_timeout_us / 1'000'000, " s: ", group_->detail()),
                kComeBack),
            now_us);
    owner_->Close(options_.group,
                  UnavailableError("GROUP_LOST", "the shards are being restarted", kComeBack));
  }
  int64_t wake_us = group_->OnTimer(now_us);
  for (const auto* deadlines : {&deadlines_, &queue_deadlines_}) {
    if (!deadlines->empty()) wake_us = Earlier(wake_us, deadlines->begin()->first);
  }
  // A time that has passed already has done its work above, and must not wake the loop again and
  // again.
  if (end_all_us_ > now_us) wake_us = Earlier(wake_us, end_all_us_);
  if (give_up_us > now_us) wake_us = Earlier(wake_us, give_up_us);
  return wake_us;
}

void EngineLoop::PumpSteps() {
  while (group_->state() == GroupState::kServing) {
    const int64_t now_us = clock_->NowUs();
    const StepPlan* plan = scheduler_->Plan(now_us);
    if (plan == nullptr) return;
    const int64_t planned_us = clock_->NowUs();
    if (probe_->timeline().on()) {
      probe_->timeline().Add(TimelineEvent::Slice(TimelineKind::kPlan, options_.group, plan->step,
                                                  now_us, planned_us));
    }
    MarkPlanned(*plan, now_us);
    SendStep(*plan, planned_us - now_us, planned_us);
  }
}

void EngineLoop::MarkPlanned(const StepPlan& plan, int64_t now_us) {
  for (const PlannedChunk& chunk : plan.chunks) {
    if (!chunk.first) continue;
    slot_sequence_[chunk.slot] = chunk.id;
    Live& live = live_.at(chunk.id);
    RequestTimes& times = live.request->times;
    if (times.planned_us > 0) continue;  // prefilled again
    times.planned_us = now_us;
    live.cached_tokens = scheduler_->CachedTokens(chunk.id);
    NotePlanned(&live);
    live.request->writer.permit().MarkRunning();
    if (options_.queue_timeout_us > 0) {
      queue_deadlines_.erase({times.arrival_us + options_.queue_timeout_us, chunk.id});
    }
    probe_->LeftQueue(now_us - times.prepared_us);
    probe_->RequestAccepted(live.prompt_tokens + live.request->resumed_tokens(), live.cached_tokens,
                            live.request->max_new_tokens, times.prepared_us - times.arrival_us);
  }
}

void EngineLoop::SendStep(const StepPlan& plan, int64_t plan_us, int64_t now_us) {
  TimelineScope send(&probe_->timeline(), clock_, TimelineKind::kSend, options_.group, plan.step);
  SentStep& sent = sent_.emplace_back();
  sent.step = plan.step;
  if (plan.with_decode || plan.kind == StepKind::kDecode) {
    sent.rows.assign(plan.decode_slots.begin(), plan.decode_slots.end());
  }
  sent.sample.kind = plan.kind;
  sent.sample.tokens = static_cast<uint32_t>(sent.rows.size());
  sent.sample.rows = static_cast<uint32_t>(sent.rows.size() + plan.chunks.size());
  for (const PlannedChunk& chunk : plan.chunks) {
    sent.sample.tokens += chunk.count;
    if (chunk.last) sent.rows.push_back(chunk.slot);
    Live& live = live_.at(chunk.id);
    live.prompt_reached = std::max(
        live.prompt_reached, std::min(chunk.start + chunk.count, live.request->prefill_tokens()));
    if (chunk.first) {
      live.resumed = live.prefill_epoch == group_->epoch();
      TracePoint(TimelineKind::kPrefill, live, live.request->times.prepared_us, clock_->NowUs());
      if (RequestTrace* const trace = live.answer->trace().get()) trace->Prefilled(now_us);
    }
    live.prefill_epoch = group_->epoch();
    sent.partial_chunks += chunk.first && chunk.last ? 0 : 1;
    sent.resumed_chunks += live.resumed ? 1 : 0;
    if (live.scores != nullptr) NoteScoring(chunk, live, &sent);
  }
  for (const Slot slot : sent.rows) sent.sequences.push_back(slot_sequence_[slot]);
  NoteMaskedRows(sent);
  sent.sent_us = now_us;
  const SharedBytes bytes =
      message_.Build(group_->epoch(), plan, *scheduler_, [this](SequenceId id) {
        const Live& live = live_.at(id);
        const PreparedRequest& request = *live.request;
        return ChunkSource{&request.sampling, request.seed, request.prompt_tokens,
                           request.constraint != nullptr, live.scores.get()};
      });
  group_->SendStep(StepMessage::CallOf(plan.kind), plan.step, bytes, now_us);
  sent.sample.host_us = plan_us + clock_->NowUs() - now_us;
  if (TimelineEvent* const event = send.event()) {
    event->values = {static_cast<uint32_t>(StepMessage::CallOf(plan.kind)), sent.sample.tokens,
                     sent.sample.rows};
  }
}

void EngineLoop::TracePoint(TimelineKind point, const Live& live, int64_t before_us,
                            int64_t at_us) {
  if (!probe_->timeline().on()) return;
  probe_->timeline().Add(TimelineEvent::Request(point, options_.group, live.answer->sequence(),
                                                live.answer->id(), before_us, at_us));
}

void EngineLoop::FlushText() {
  TimelineScope flush(&probe_->timeline(), clock_, TimelineKind::kFlush, options_.group);
  for (uint32_t worker = 0; worker < outbox_.size(); ++worker) {
    if (outbox_[worker].empty()) continue;
    // A full queue keeps the batch here; the next step's tokens join it. Its size is bounded by
    // what the live requests may emit.
    if (text_->Post(worker, std::move(outbox_[worker]))) outbox_[worker] = StreamBatch();
  }
}

void EngineLoop::Publish(int64_t now_us) {
  const bool working = !live_.empty() && group_->state() == GroupState::kServing;
  if (!working) {
    idle_since_us_.store(0, std::memory_order_release);
  } else if (idle_since_us_.load(std::memory_order_relaxed) == 0) {
    idle_since_us_.store(now_us, std::memory_order_release);
  }
  serving_.store(group_->state() == GroupState::kServing, std::memory_order_release);
  if (scheduler_ != nullptr) {
    probe_->Scheduler(scheduler_->Stats(), group_->state() == GroupState::kServing, options_.group);
  }
  if (shares_work()) Report();
  if (group_->state() == published_state_ && group_->state() == GroupState::kServing) return;
  published_state_ = group_->state();
  {
    absl::MutexLock lock(&mutex_);
    status_.state = StateForDoors();
    status_.percent = group_->percent();
    status_.detail = group_->detail();
  }
  owner_->SetState(options_.group, draining_.load() ? ServerState::kDraining : StateForDoors());
  if (published_state_ == GroupState::kServing && options_.on_serving) options_.on_serving();
}

ServerState EngineLoop::StateForDoors() const {
  switch (group_->state()) {
    case GroupState::kConnecting:
      return scheduler_ == nullptr ? ServerState::kStarting : ServerState::kRecovering;
    case GroupState::kLoading:
      return ServerState::kLoading;
    case GroupState::kJoining:
    case GroupState::kWarming:
      return scheduler_ == nullptr ? ServerState::kWarming : ServerState::kRecovering;
    case GroupState::kServing:
      return ServerState::kReady;
    case GroupState::kRecovering:
      return ServerState::kRecovering;
  }
  return ServerState::kStarting;
}

}  // namespace weft::router

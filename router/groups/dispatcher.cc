#include "router/groups/dispatcher.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "router/engine/outcome.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr absl::Duration kComeBack = absl::Seconds(2);
// Requests that one round may pass over because only a full group could take them.
constexpr int kPassedOverMax = 64;

int64_t Earlier(int64_t a, int64_t b) { return b > 0 ? std::min(a, b) : a; }

}  // namespace

Dispatcher::Dispatcher(DispatcherOptions options, std::vector<Inbox*> groups, Probe* probe,
                       Runtime runtime)
    : options_(options),
      groups_(std::move(groups)),
      probe_(probe),
      runtime_(std::move(runtime)),
      clock_(runtime_.clock),
      events_(kEngineEventsMax),
      poller_(runtime_.make_poller(clock_)),
      loads_(groups_.size()),
      sent_(groups_.size()),
      absences_(groups_.size(), Absence{clock_->NowUs(), false}) {
  WEFT_CHECK(!groups_.empty() && groups_.size() <= kGroupsMax);
}

void Dispatcher::Start() {
  loop_ = runtime_.executor->Start(
      "dispatch", [this](bool) { return Turn(); }, /*nice=*/0);
}

void Dispatcher::Stop() {
  if (loop_ == nullptr) return;
  Push(StopEvent{});
  loop_->Join();
  loop_.reset();
}

// -- From any thread -----------------------------------------------------------------------------

bool Dispatcher::Push(Event&& event) {
  if (!events_.TryPush(std::move(event))) return false;
  poller_->Wake();
  return true;
}

bool Dispatcher::Arrive(std::unique_ptr<PreparedRequest>&& request) {
  Event event(std::move(request));
  if (Push(std::move(event))) return true;
  request = std::move(std::get<std::unique_ptr<PreparedRequest>>(event));
  return false;
}

void Dispatcher::CancelSequence(SequenceId sequence) {
  if (Push(CancelEvent{sequence})) return;
  // Full only when this thread falls behind a flood; the cause stands in the answer.
  lost_cancel_.store(true, std::memory_order_release);
  poller_->Wake();
}

bool Dispatcher::ForgetPrefixes() { return Push(ForgetEvent{}) || events_.closed(); }

void Dispatcher::EndAllAt(int64_t deadline_us) { Push(DrainEvent{deadline_us}); }

void Dispatcher::Report(uint32_t group, const GroupReport& report,
                        absl::Span<const TenantNews> news) {
  Mailbox& mail = mail_[group];
  bool room = false;
  {
    absl::MutexLock lock(&mail.mutex);
    const GroupReport& before = mail.report;
    // What was generated can wait; who may now be handed out cannot.
    room = report.serving != before.serving || report.waiting < before.waiting ||
           report.running + report.waiting < before.running + before.waiting ||
           report.arrived != before.arrived || report.free_tokens > before.free_tokens ||
           report.request_tokens_max != before.request_tokens_max;
    mail.report = report;
    for (const TenantNews& added : news) {
      TenantNews& sum = mail.news[added.tenant];
      sum.tenant = added.tenant;
      sum.tokens += added.tokens;
      sum.came += added.came;
      sum.ended += added.ended;
      room |= added.ended > 0;
    }
  }
  if (room) poller_->Wake();
}

bool Dispatcher::GiveBack(uint32_t group, std::unique_ptr<PreparedRequest>&& request) {
  Mailbox& mail = mail_[group];
  {
    absl::MutexLock lock(&mail.mutex);
    if (mail.closed) return false;
    // Its own word of that may come after this.
    mail.report.serving = false;
    mail.returned.push_back(std::move(request));
  }
  probe_->GivenBack();
  poller_->Wake();
  return true;
}

// -- Thread --------------------------------------------------------------------------------------

LoopState Dispatcher::Turn() {
  std::vector<Event> events = events_.PopAll(absl::ZeroDuration());
  const int64_t now_us = clock_->NowUs();
  queue_.Advance(now_us);
  for (uint32_t group = 0; group < groups_.size(); ++group) ReadMail(group, now_us);
  for (Event& event : events) Handle(event, now_us);
  if (lost_cancel_.exchange(false, std::memory_order_acq_rel)) FindLostCancels(now_us);
  const int64_t wake_us = OnTimers(now_us);
  HandOut(now_us);
  probe_->Undispatched(queue_.size());
  if (!stopping_) {
    poller_->Wait(wake_us);
    return LoopState::kIdle;
  }
  events_.Close();
  for (Event& event : events_.PopAll(absl::ZeroDuration())) Handle(event, now_us);
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    {
      absl::MutexLock lock(&mail_[group].mutex);
      mail_[group].closed = true;
    }
    ReadMail(group, now_us);
  }
  EndAll(ServerStopping(), now_us);
  return LoopState::kEnded;
}

void Dispatcher::Handle(Event& event, int64_t now_us) {
  if (auto* request = std::get_if<std::unique_ptr<PreparedRequest>>(&event)) {
    OnArrival(std::move(*request), /*is_new=*/true, now_us);
  } else if (auto* cancel = std::get_if<CancelEvent>(&event)) {
    const auto found = requests_.find(cancel->sequence);
    if (found == requests_.end()) return;  // a group has it, or it has ended
    End(cancel->sequence, CancelStatus(found->second->writer.answer().cancelled()), now_us);
  } else if (std::holds_alternative<ForgetEvent>(event)) {
    for (uint32_t group = 0; group < groups_.size(); ++group) prefixes_.Forget(group);
  } else if (auto* drain = std::get_if<DrainEvent>(&event)) {
    end_all_us_ = Earlier(drain->deadline_us, end_all_us_);
  } else if (!stopping_) {
    stopping_ = true;
    StopAll(ServerStopping(), now_us);
  }
}

void Dispatcher::ReadMail(uint32_t group, int64_t now_us) {
  GroupReport report;
  absl::btree_map<TenantIndex, TenantNews> news;
  std::vector<std::unique_ptr<PreparedRequest>> returned;
  {
    Mailbox& mail = mail_[group];
    absl::MutexLock lock(&mail.mutex);
    report = mail.report;
    news.swap(mail.news);
    returned.swap(mail.returned);
  }
  for (const auto& [tenant, what] : news) {
    queue_.Join(tenant, what.came);
    queue_.Charge(tenant, what.tokens, what.ended, now_us);
  }
  if (report.serving != loads_[group].serving) OnServing(group, report.serving, now_us);
  SetLoad(group, report);
  given_back_ += returned.size();
  for (auto& request : returned) OnArrival(std::move(request), /*is_new=*/false, now_us);
}

void Dispatcher::SetLoad(uint32_t group, const GroupReport& report) {
  GroupLoad& load = loads_[group];
  if (report.request_tokens_max != load.request_tokens_max) queue_.Unpark();
  load.serving = report.serving;
  load.running_max = report.running_max;
  load.running = report.running;
  load.waiting = report.waiting + static_cast<uint32_t>(sent_[group].requests - report.arrived);
  load.waiting_tokens = report.waiting_tokens + sent_[group].tokens - report.arrived_tokens;
  load.pool_tokens = report.pool_tokens;
  load.free_tokens = report.free_tokens;
  load.request_tokens_max = report.request_tokens_max;
  load.received_tokens = sent_[group].tokens;
  block_tokens_ = std::max(block_tokens_, report.block_tokens);
}

void Dispatcher::OnServing(uint32_t group, bool serving, int64_t now_us) {
  loads_[group].serving = serving;
  absences_[group] = {now_us, false};
  if (!serving) prefixes_.Forget(group);
  queue_.Unpark();
  const bool any =
      std::any_of(loads_.begin(), loads_.end(), [](const GroupLoad& load) { return load.serving; });
  lost_us_ = any ? 0 : now_us;
}

void Dispatcher::OnArrival(std::unique_ptr<PreparedRequest> request, bool is_new, int64_t now_us) {
  const Answer& answer = request->writer.answer();
  const SequenceId sequence = answer.sequence();
  const CancelReason reason = answer.cancelled();
  if (is_new && reason != CancelReason::kNone) return Refuse(*request, CancelStatus(reason));
  if (is_new && stopping_) return Refuse(*request, ServerStopping());
  QueuedRequest queued;
  queued.id = sequence;
  queued.tenant = answer.tenant()->index;
  queued.weight = answer.tenant()->limits.weight;
  queued.priority = request->priority;
  queued.arrival_us = request->times.prepared_us;
  if (!is_new) queue_.TakeBack(queued.tenant, request->prefill_tokens());
  queue_.Push(queued, is_new);
  if (request->deadline_us > 0) deadlines_.emplace(request->deadline_us, sequence);
  if (options_.queue_timeout_us > 0) {
    queue_deadlines_.emplace(request->times.arrival_us + options_.queue_timeout_us, sequence);
  }
  requests_[sequence] = std::move(request);
  if (reason != CancelReason::kNone) return End(sequence, CancelStatus(reason), now_us);
  if (stopping_) End(sequence, ServerStopping(), now_us);
}

void Dispatcher::FindLostCancels(int64_t now_us) {
  for (const SequenceId id : Waiting()) {
    const CancelReason reason = requests_.at(id)->writer.answer().cancelled();
    if (reason != CancelReason::kNone) End(id, CancelStatus(reason), now_us);
  }
}

// -- Timers --------------------------------------------------------------------------------------

void Dispatcher::EndLate(int64_t now_us) {
  const auto end_due = [&](const absl::btree_set<std::pair<int64_t, SequenceId>>& deadlines,
                           CancelReason reason) {
    while (!deadlines.empty() && deadlines.begin()->first <= now_us) {
      const SequenceId sequence = deadlines.begin()->second;
      Answer& answer = requests_.at(sequence)->writer.answer();
      answer.Cancel(reason);
      End(sequence, CancelStatus(answer.cancelled()), now_us);
    }
  };
  end_due(deadlines_, CancelReason::kDeadline);
  end_due(queue_deadlines_, CancelReason::kQueueTimeout);
}

int64_t Dispatcher::OnTimers(int64_t now_us) {
  EndLate(now_us);
  if (end_all_us_ > 0 && now_us >= end_all_us_) {
    StopAll(UnavailableError("DRAINING", "the server shut down before the answer was complete",
                             kComeBack),
            now_us);
  }
  const int64_t give_up_us = lost_us_ > 0 ? lost_us_ + options_.recovery_timeout_us : 0;
  if (give_up_us > 0 && now_us >= give_up_us) {
    EndAll(UnavailableError("GROUP_LOST",
                            absl::StrCat("no group of shards came back within ",
                                         options_.recovery_timeout_us / 1'000'000, " s"),
                            kComeBack),
           now_us);
  }
  int64_t wake_us = std::numeric_limits<int64_t>::max();
  for (size_t group = 0; group < groups_.size(); ++group) {
    Absence& absence = absences_[group];
    if (loads_[group].serving || absence.given_up) continue;
    const int64_t end_us = absence.since_us + options_.recovery_timeout_us;
    absence.given_up = now_us >= end_us;
    if (absence.given_up) {
      queue_.Unpark();
    } else {
      wake_us = std::min(wake_us, end_us);
    }
  }
  for (const auto* deadlines : {&deadlines_, &queue_deadlines_}) {
    if (!deadlines->empty()) wake_us = Earlier(wake_us, deadlines->begin()->first);
  }
  if (end_all_us_ > now_us) wake_us = Earlier(wake_us, end_all_us_);
  if (give_up_us > now_us) wake_us = Earlier(wake_us, give_up_us);
  return wake_us;
}

// -- Handing out ---------------------------------------------------------------------------------

void Dispatcher::HandOut(int64_t now_us) {
  if (std::exchange(passed_over_, false)) queue_.Unpark();
  int passed_over = 0;
  while (!queue_.empty()) {
    const SequenceId sequence = queue_.Next();
    const PreparedRequest& request = *requests_.at(sequence);
    const PlacedRequest asks = Asks(request, sequence);
    const Placement placement = Choose(request, asks);
    if (placement.found()) {
      if (!Send(sequence, placement, now_us)) return;
    } else if (placement.kind == Placement::Kind::kLater) {
      if (!AnySmaller(asks) || ++passed_over > kPassedOverMax) return;
      passed_over_ = true;
      queue_.Park(sequence);
    } else if (AnyMayComeBack()) {
      // It was accepted when pools were larger. A group that is lost may come back with more.
      queue_.Park(sequence);
    } else {
      End(sequence,
          UnavailableError("POOL_SHRANK", "the restarted shards have too little KV memory",
                           kComeBack),
          now_us);
    }
  }
}

bool Dispatcher::AnySmaller(const PlacedRequest& asks) const {
  return std::any_of(loads_.begin(), loads_.end(), [&asks](const GroupLoad& load) {
    return load.serving && load.request_tokens_max < asks.tokens_min;
  });
}

bool Dispatcher::AnyMayComeBack() const {
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (!loads_[group].serving && !absences_[group].given_up) return true;
  }
  return false;
}

PlacedRequest Dispatcher::Asks(const PreparedRequest& request, SequenceId sequence) const {
  uint32_t places = 0;
  for (const GroupLoad& load : loads_) places += load.serving ? load.running_max : 0;
  PlacedRequest asks;
  asks.leaves_reserve = queue_.HoldsShare(sequence, places);
  // What was resumed and is complete takes no memory.
  if (request.resumed_end.has_value()) return asks;
  asks.prompt_tokens = request.prefill_tokens();
  asks.tokens_min = request.max_tokens_named ? request.prompt_tokens + request.max_new_tokens
                                             : request.prefill_tokens() + 1;
  return asks;
}

Placement Dispatcher::Choose(const PreparedRequest& request, const PlacedRequest& asks) {
  std::array<uint32_t, kGroupsMax> cached{};
  const auto by_group = absl::MakeSpan(cached).first(groups_.size());
  const Placement by_load = Place(loads_, asks, by_group);
  if (!by_load.found() || !options_.prefix_cache) return by_load;
  prefixes_.Find(request.prompt.hashes(), by_group);
  for (uint32_t& tokens : by_group) tokens *= block_tokens_;
  return Place(loads_, asks, by_group);
}

bool Dispatcher::Send(SequenceId sequence, const Placement& placement, int64_t now_us) {
  std::unique_ptr<PreparedRequest> request = Take(sequence);
  const uint32_t prefill_tokens = request->prefill_tokens();
  const uint32_t group = placement.group;
  GroupLoad& load = loads_[group];
  if (!request->resumed_end.has_value()) {
    request->max_new_tokens =
        std::min(request->max_new_tokens, load.request_tokens_max - request->prompt_tokens);
  }
  if (options_.prefix_cache) prefixes_.Note(request->prompt.hashes(), group);
  if (!groups_[group]->Arrive(std::move(request))) {
    queue_.Drop(sequence, now_us);
    Refuse(*request, ServerStopping());
    return false;
  }
  queue_.HandOut(sequence, prefill_tokens);
  ++load.waiting;
  load.waiting_tokens += prefill_tokens;
  ++sent_[group].requests;
  sent_[group].tokens += prefill_tokens;
  load.received_tokens = sent_[group].tokens;
  probe_->Placed(placement.kind == Placement::Kind::kPrefix);
  return true;
}

// -- Ends ----------------------------------------------------------------------------------------

std::unique_ptr<PreparedRequest> Dispatcher::Take(SequenceId sequence) {
  const auto node = requests_.extract(sequence);
  WEFT_CHECK(!node.empty());
  PreparedRequest& request = *node.mapped();
  if (request.deadline_us > 0) deadlines_.erase({request.deadline_us, sequence});
  if (options_.queue_timeout_us > 0) {
    queue_deadlines_.erase({request.times.arrival_us + options_.queue_timeout_us, sequence});
  }
  return std::move(node.mapped());
}

void Dispatcher::End(SequenceId sequence, const absl::Status& why, int64_t now_us) {
  const std::unique_ptr<PreparedRequest> request = Take(sequence);
  queue_.Drop(sequence, now_us);
  Refuse(*request, why);
}

void Dispatcher::Refuse(PreparedRequest& request, const absl::Status& why) {
  CountUnfinished(request.writer.answer(), CancelPhase::kQueue, why, probe_);
  for (const auto& follower : request.followers) follower->writer.Fail(why);
  request.writer.Fail(why);
}

void Dispatcher::EndAll(const absl::Status& why, int64_t now_us) {
  for (const SequenceId id : Waiting()) End(id, why, now_us);
}

void Dispatcher::StopAll(const absl::Status& why, int64_t now_us) {
  for (const SequenceId id : Waiting()) {
    requests_.at(id)->writer.answer().Cancel(CancelReason::kAdmin);
  }
  EndAll(why, now_us);
}

uint64_t Dispatcher::HandedOutForTest() const {
  uint64_t sum = 0;
  for (const Sent& sent : sent_) sum += sent.requests;
  return sum;
}

std::vector<SequenceId> Dispatcher::Waiting() const {
  std::vector<SequenceId> ids;
  ids.reserve(requests_.size());
  for (const auto& [id, request] : requests_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace weft::router

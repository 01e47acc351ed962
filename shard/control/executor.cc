#include "shard/control/executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"
#include "shard/control/mask_fields.h"

namespace weft::shard {
namespace {

constexpr size_t kCallsWaitingMax = 8;

}  // namespace

Executor::Executor(ExecutorOptions options, v1::InfoResponse facts, const LoadProgress& progress)
    : options_(std::move(options)),
      progress_(progress),
      load_begin_us_(options_.clock->NowUs()),
      heartbeat_(*options_.clock),
      facts_(std::move(facts)) {
  WEFT_CHECK(options_.on_stuck != nullptr);
  step_thread_ = Thread("step", [this] { StepLoop(); });
  device_thread_ = Thread(
      "device", [this] { DeviceLoop(); }, options_.device_nice);
}

Executor::~Executor() { Shutdown(absl::ZeroDuration()); }

void Executor::SetReady(LoadedModel model) {
  absl::MutexLock lock(&mutex_);
  WEFT_CHECK(!loaded_);
  model_ = std::move(model);
  facts_ = model_.facts;
  load_elapsed_us_ = options_.clock->NowUs() - load_begin_us_;
  loaded_ = true;
  if (state_ == v1::SHARD_STATE_LOADING) state_ = v1::SHARD_STATE_READY;
}

void Executor::SetFailed(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  state_ = v1::SHARD_STATE_FAILED;
  facts_.set_error(std::string(why.message()));
}

void Executor::Info(v1::InfoResponse* response) const {
  absl::MutexLock lock(&mutex_);
  *response = facts_;
  const bool joined = current_ != nullptr && current_->joined && !current_->ending;
  response->set_state(state_ == v1::SHARD_STATE_READY && joined ? v1::SHARD_STATE_JOINED : state_);
  response->set_epoch(joined ? current_->number : membership_.fence());
  response->set_kept_epoch(kept_epoch_);
  response->set_holder_router_id(membership_.holder_id());
  if (loaded_ && model_.isa != nullptr) response->set_isa(model_.isa());
  v1::LoadProgress* load = response->mutable_load();
  load->set_bytes_total(progress_.bytes_total.load(std::memory_order_relaxed));
  load->set_bytes_done(progress_.bytes_done.load(std::memory_order_relaxed));
  load->set_tensors_total(progress_.tensors_total.load(std::memory_order_relaxed));
  load->set_tensors_done(progress_.tensors_done.load(std::memory_order_relaxed));
  load->set_elapsed_us(
      static_cast<uint64_t>(loaded_ ? load_elapsed_us_ : options_.clock->NowUs() - load_begin_us_));
  // A device that works on what it was given shows no other sign of life.
  const bool works = loaded_ && model_.runner->work_left_us() > 0;
  response->set_heartbeat_age_us(works ? 0 : static_cast<uint64_t>(heartbeat_.age_us()));
  response->set_cpu_time_us(static_cast<uint64_t>(ProcessCpuUs()));
}

uint64_t Executor::Hold(const v1::HoldRequest& request, Done done) {
  const RouterClaim claim{request.router_id(), request.launcher_id(), request.generation()};
  Answers answers;
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = ++holds_made_;
    absl::Status status = membership_.CheckHold(claim);
    if (status.ok() && draining_) status = absl::UnavailableError("the shard is shutting down");
    if (status.ok() && request.release()) {
      if (membership_.holder_id() == claim.router_id) {
        ReleaseHold(absl::CancelledError("the router released its claim"), &answers);
      }
      answers.emplace_back(std::move(done), absl::OkStatus());
    } else if (status.ok()) {
      // The same router anew has lost the connection of the old call; another one is a later start.
      ReleaseHold(membership_.holder_id() == claim.router_id
                      ? absl::AbortedError("the router claims the shard by another call")
                      : absl::FailedPreconditionError("a later start of the router by the same "
                                                      "launcher has taken the shard over"),
                  &answers);
      membership_.Hold(claim);
      hold_ = HoldCall{number, std::move(done)};
    } else {
      answers.emplace_back(std::move(done), std::move(status));
    }
  }
  Send(std::move(answers));
  return number;
}

void Executor::EndHold(uint64_t number) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    if (!hold_.has_value() || hold_->number != number) return;
    WEFT_LOG_INFO("the router's claim has ended with its call");
    ReleaseHold(absl::CancelledError("the call was given up"), &answers);
  }
  Send(std::move(answers));
}

void Executor::ReleaseHold(const absl::Status& why, Answers* answers) {
  membership_.Release();
  if (!hold_.has_value()) return;
  answers->emplace_back(std::move(hold_->done), why);
  hold_.reset();
}

absl::Status Executor::Rendezvous(const v1::RendezvousRequest& request,
                                  v1::RendezvousResponse* response) {
  if (options_.rank != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("Rendezvous: this is rank ", options_.rank, ", not rank 0"));
  }
  if (request.world() != options_.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("world: ", request.world(), ", this shard was started for ", options_.world));
  }
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    WEFT_RETURN_IF_ERROR(membership_.CheckRendezvous(request.epoch(), request.router_id()));
    WEFT_RETURN_IF_ERROR(CheckLoaded());
    membership_.Raise(request.epoch(), request.router_id());
    BeginEnd(absl::AbortedError(absl::StrCat("epoch ", request.epoch(), " begins")), &answers);
  }
  Send(std::move(answers));
  // Not under the lock: it may take a while.
  WEFT_ASSIGN_OR_RETURN(*response->mutable_token(),
                        model_.meeting->Offer(request.epoch(), options_.world));
  absl::MutexLock lock(&mutex_);
  if (membership_.fence() != request.epoch() || membership_.used() >= request.epoch()) {
    model_.meeting->Withdraw(request.epoch());
    return FencedError(request.epoch(), membership_.fence());
  }
  return absl::OkStatus();
}

void Executor::JoinGroup(const v1::JoinGroupRequest& request, Done done) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    if (absl::Status status = AdmitJoin(request); !status.ok()) {
      answers.emplace_back(std::move(done), std::move(status));
    } else {
      membership_.Raise(request.epoch(), request.router_id());
      membership_.Use(request.epoch());
      const absl::Status why =
          absl::AbortedError(absl::StrCat("epoch ", request.epoch(), " begins"));
      BeginEnd(why, &answers);
      auto epoch = std::make_shared<EpochState>(&heartbeat_);
      epoch->number = request.epoch();
      epoch->router_id = request.router_id();
      pending_join_ = PendingJoin{std::move(epoch),
                                  request.token(),
                                  request.kept_epoch(),
                                  request.isa(),
                                  absl::Now() + options_.join_timeout,
                                  std::move(done)};
      device_wake_.Signal();
    }
  }
  Send(std::move(answers));
}

absl::Status Executor::AdmitJoin(const v1::JoinGroupRequest& request) const {
  if (request.rank() != options_.rank || request.world() != options_.world) {
    return absl::InvalidArgumentError(absl::StrCat("rank, world: ", request.rank(), " of ",
                                                   request.world(), ", this shard was started as ",
                                                   options_.rank, " of ", options_.world));
  }
  WEFT_RETURN_IF_ERROR(membership_.CheckJoin(request.epoch(), request.router_id()));
  return CheckLoaded();
}

void Executor::LeaveGroup(const v1::LeaveGroupRequest& request, Done done) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    const EpochState* member = pending_join_ ? pending_join_->epoch.get() : current_.get();
    absl::Status status = membership_.CheckLeave(request.epoch(), request.router_id(),
                                                 member == nullptr ? 0 : member->number,
                                                 member == nullptr ? 0 : member->router_id);
    if (status.ok() && leave_calls_.size() >= kCallsWaitingMax) {
      status = absl::ResourceExhaustedError("too many LeaveGroup calls are waiting");
    }
    if (status.ok()) {
      membership_.Raise(request.epoch(), request.router_id());
      membership_.Use(request.epoch());
      if (loaded_) model_.meeting->Withdraw(request.epoch());
      if (request.keep() && CanPause()) current_->pauses = true;
      BeginEnd(absl::AbortedError(absl::StrCat("the router left epoch ", request.epoch())),
               &answers);
    }
    // Answered when the device thread is idle; it is when there is no epoch.
    if (status.ok() && current_ != nullptr) {
      leave_calls_.push_back(std::move(done));
    } else {
      answers.emplace_back(std::move(done), std::move(status));
    }
  }
  Send(std::move(answers));
}

void Executor::Warmup(const v1::WarmupRequest& request, v1::WarmupResponse* response, Done done) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status status = CheckCurrent(request.epoch());
    if (status.ok() && current_->router_id != request.router_id()) {
      status = absl::PermissionDeniedError(
          absl::StrCat("router_id: epoch ", request.epoch(), " belongs to another router"));
    }
    if (status.ok() && warmup_calls_.size() >= kCallsWaitingMax) {
      status = absl::ResourceExhaustedError("too many Warmup calls are waiting");
    }
    if (status.ok() && !current_->warmup.has_value()) {
      warmup_calls_.push_back(WarmupCall{response, std::move(done)});
      device_wake_.Signal();
    } else {
      if (status.ok()) *response = *current_->warmup;
      answers.emplace_back(std::move(done), std::move(status));
    }
  }
  Send(std::move(answers));
}

void Executor::Step(StepCall call) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    call.arrived_us = options_.clock->NowUs();
    status = CheckCurrent(call.header().epoch());
    if (status.ok()) status = current_->broken;
    if (status.ok() && !current_->warmup.has_value()) {
      status = absl::FailedPreconditionError("Warmup has not run in this epoch");
    }
    if (status.ok() && draining_) status = absl::UnavailableError("the shard is shutting down");
    if (status.ok()) status = current_->order.Push(&call);
    if (status.ok()) step_wake_.Signal();
  }
  if (!status.ok()) call.done(std::move(status));
}

absl::Status Executor::MaskRows(const v1::MaskRowsRequest& request) {
  uint32_t running_max = 0;
  uint32_t vocab_size = 0;
  {
    absl::MutexLock lock(&mutex_);
    WEFT_RETURN_IF_ERROR(CheckCurrent(request.epoch()));
    running_max = model_.limits.running_max;
    vocab_size = model_.limits.vocab_size;
  }
  // Not under the lock: it may take a while.
  WEFT_ASSIGN_OR_RETURN(auto rows, ParseMaskRows(request, running_max, vocab_size));
  absl::MutexLock lock(&mutex_);
  WEFT_RETURN_IF_ERROR(CheckCurrent(request.epoch()));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<StepMasks> masks,
                        current_->masks.Of(request.step(), current_->order.unanswered()));
  for (auto& [slot, mask] : rows) {
    WEFT_RETURN_IF_ERROR(masks->Put(slot, std::move(mask), running_max));
  }
  device_wake_.Signal();
  return absl::OkStatus();
}

absl::Status Executor::CheckLoaded() const {
  if (state_ == v1::SHARD_STATE_READY && !draining_) return absl::OkStatus();
  if (state_ == v1::SHARD_STATE_LOADING) {
    return absl::FailedPreconditionError("the shard is loading its weights");
  }
  return absl::UnavailableError("the shard is shutting down");
}

absl::Status Executor::CheckCurrent(Epoch number) const {
  if (current_ == nullptr || !current_->joined) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch: ", number, ", this shard is in no epoch"));
  }
  if (current_->number != number) return FencedError(number, current_->number);
  if (current_->ending) return absl::AbortedError(absl::StrCat("epoch ", number, " is ending"));
  return absl::OkStatus();
}

void Executor::BeginEnd(const absl::Status& why, Answers* answers) {
  if (pending_join_.has_value()) {
    answers->emplace_back(std::move(pending_join_->done), why);
    pending_join_.reset();
  }
  if (current_ == nullptr || current_->ending) return;
  current_->ending = true;
  current_->abort_at = absl::Now() + (current_->pauses ? kPausePatience : absl::ZeroDuration());
  if (!current_->pauses) AbortDevice();
  FailPrepared(why, answers);
  FailWaiting(*current_, why, answers);
  leave_deadline_ = std::max(IdleBy(), current_->abort_at + options_.leave_timeout);
  device_wake_.Signal();
  step_wake_.Signal();
}

bool Executor::CanPause() const {
  return current_ != nullptr && !pending_join_.has_value() && current_->warmup.has_value() &&
         !current_->ending && current_->broken.ok() && model_.runner->keeps_communicators();
}

absl::Time Executor::IdleBy() const {
  return absl::Now() + absl::Microseconds(model_.runner->work_left_us()) + options_.leave_timeout;
}

void Executor::AbortDevice() {
  if (current_ != nullptr) current_->masks.Abort();
  if (meeting_) {
    model_.meeting->Abort(current_->number);
  } else {
    model_.runner->Abort();
  }
}

void Executor::Break(EpochState& epoch, StepNumber step, const absl::Status& why,
                     Answers* answers) {
  if (!epoch.broken.ok() || epoch.ending) return;
  epoch.broken = absl::FailedPreconditionError(
      absl::StrCat("epoch ", epoch.number, " failed at step ", step, ": ", why.message()));
  FailWaiting(epoch, epoch.broken, answers);
}

void Executor::FailWaiting(EpochState& epoch, const absl::Status& why, Answers* answers) {
  for (StepCall& call : epoch.order.TakeAll()) answers->emplace_back(std::move(call.done), why);
}

void Executor::FailPrepared(const absl::Status& why, Answers* answers) {
  for (PreparedStep& step : prepared_) answers->emplace_back(std::move(step.call.done), why);
  prepared_.clear();
  // A warm-up that runs answers its callers itself.
  if (device_job_ == Job::kWarmup) return;
  for (WarmupCall& call : warmup_calls_) answers->emplace_back(std::move(call.done), why);
  warmup_calls_.clear();
}

void Executor::Send(Answers answers) {
  for (auto& [done, status] : answers) done(std::move(status));
}

void Executor::Shutdown(absl::Duration drain) {
  const absl::Status why = absl::UnavailableError("the shard is shutting down");
  Answers refused;
  {
    absl::MutexLock lock(&mutex_);
    if (stop_device_) return;
    draining_ = true;
    ReleaseHold(why, &refused);
    FailPrepared(why, &refused);
    if (current_ != nullptr) FailWaiting(*current_, why, &refused);
  }
  Send(std::move(refused));
  Answers ended;
  {
    absl::MutexLock lock(&mutex_);
    const auto no_step = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return launched_.empty(); };
    mutex_.AwaitWithTimeout(absl::Condition(&no_step), drain);
    BeginEnd(why, &ended);
    stop_device_ = true;
    device_wake_.Signal();
  }
  Send(std::move(ended));
  // The device thread ends the epoch first; the step thread watches it and answers the last step.
  device_thread_.Join();
  {
    absl::MutexLock lock(&mutex_);
    stop_step_ = true;
    step_wake_.Signal();
  }
  step_thread_.Join();
}

}  // namespace weft::shard

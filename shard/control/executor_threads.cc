// The two threads of the executor: the step thread, which prepares steps and answers them, and the
// device thread, which runs them.

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"
#include "common/thread_watch.h"
#include "shard/control/executor.h"
#include "shard/control/step_answer.h"

namespace weft::shard {
namespace {

// How often an idle device thread shows life.
constexpr absl::Duration kIdleBeat = absl::Milliseconds(250);
// How often an epoch that does not end is aborted again.
constexpr absl::Duration kAbortAgain = absl::Milliseconds(50);
// How often the device thread looks whether a launched step has ended.
constexpr absl::Duration kReadyPoll = absl::Microseconds(20);

uint32_t ClampUs(int64_t us) {
  return static_cast<uint32_t>(std::clamp<int64_t>(us, 0, UINT32_MAX));
}

}  // namespace

// -- Step thread ---------------------------------------------------------------------------------

void Executor::StepLoop() {
  for (bool stop = false; !stop;) {
    bool prepare = false;
    bool stuck = false;
    std::vector<PreparedStep> results;
    {
      absl::MutexLock lock(&mutex_);
      while (results_.empty() && !CanPrepare() && !stop_step_ && absl::Now() < leave_deadline_) {
        const bool ending = current_ != nullptr && current_->ending;
        const absl::Time again = ending ? absl::Now() + kAbortAgain : absl::InfiniteFuture();
        const WatchedWait wait;
        step_wake_.WaitWithDeadline(&mutex_, std::min(leave_deadline_, again));
        // The first Abort misses a communicator that is on its way from the meeting to the runner.
        const bool late = current_ != nullptr && current_->ending;
        if (late && absl::Now() >= current_->abort_at) AbortDevice();
      }
      prepare = CanPrepare();
      results.swap(results_);
      for (PreparedStep& step : results) step.epoch->order.OnAnswered();
      stop = stop_step_;
      if (absl::Now() >= leave_deadline_) {
        // A launch that was under way when the epoch was ended counts too.
        stuck = model_.runner->work_left_us() == 0;
        leave_deadline_ = stuck ? absl::InfiniteFuture() : IdleBy();
      }
    }
    if (stuck) {
      options_.on_stuck(absl::StrCat("the device thread was not idle ",
                                     absl::FormatDuration(options_.leave_timeout),
                                     " after its epoch was ended and its steps were due"));
    }
    // First what the device may be waiting for.
    if (prepare) PrepareNext();
    for (PreparedStep& step : results) Answer(std::move(step));
  }
}

bool Executor::CanPrepare() const {
  return current_ != nullptr && current_->warmup.has_value() && !current_->ending &&
         current_->broken.ok() && !draining_ && prepared_.size() < kStepsInFlightMax &&
         current_->order.HasNext();
}

void Executor::PrepareNext() {
  PreparedStep step;
  {
    absl::MutexLock lock(&mutex_);
    if (!CanPrepare()) return;
    step.epoch = current_;
    step.call = current_->order.PopNext();
    if (!spare_batches_.empty()) {
      step.batch = std::move(spare_batches_.back());
      spare_batches_.pop_back();
    }
  }
  const int64_t begin_us = options_.clock->NowUs();
  absl::Status status = std::visit(
      [&](const auto* request) { return step.epoch->inputs->Prepare(*request, &step.batch); },
      step.call.request);
  step.host_us = ClampUs(options_.clock->NowUs() - begin_us);

  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    // The result of the step before still counts, so the device is not aborted here.
    if (status.ok()) status = TakeMasks(*step.epoch, &step.batch);
    if (!status.ok()) Break(*step.epoch, step.call.header().step(), status, &answers);
    if (status.ok()) status = step.epoch->broken;
    if (status.ok() && step.epoch->ending) status = absl::AbortedError("the epoch is ending");
    if (status.ok() && draining_) status = absl::UnavailableError("the shard is shutting down");
    if (status.ok()) {
      prepared_.push_back(std::move(step));
      device_wake_.Signal();
    } else {
      answers.emplace_back(std::move(step.call.done), std::move(status));
    }
  }
  Send(std::move(answers));
}

absl::Status Executor::TakeMasks(EpochState& epoch, StepBatch* batch) {
  std::vector<Slot> slots;
  for (const StepSequence& sequence : batch->sequences) {
    if (sequence.masked) slots.push_back(sequence.slot);
  }
  if (slots.empty() && epoch.masks.Find(batch->step) == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(batch->masks, epoch.masks.Of(batch->step, epoch.order.unanswered()));
  return batch->masks->Expect(slots);
}

void Executor::Answer(PreparedStep step) {
  if (step.result.ok()) {
    const StepResult& result = *step.result;
    FillResponse(step.batch, result, options_.rank == 0, step.call.response);
    v1::StepTimings* timings = step.call.response->mutable_timings();
    timings->set_queue_us(step.queue_us);
    timings->set_host_us(step.host_us);
    timings->set_device_us(result.device_us);
    timings->set_comm_us(result.comm_us);
    timings->set_answered_us(static_cast<uint64_t>(options_.clock->NowUs()));
    if (options_.probe != nullptr) {
      options_.probe->StepDone(step.call.method(), *timings, result);
    }
  }
  step.call.done(step.result.status());
  absl::MutexLock lock(&mutex_);
  if (spare_batches_.size() < kStepsInFlightMax) spare_batches_.push_back(std::move(step.batch));
}

// -- Device thread -------------------------------------------------------------------------------

void Executor::DeviceLoop() {
  // Linux rounds waits up by 50 us otherwise; see kReadyPoll.
  prctl(PR_SET_TIMERSLACK, 1000);
  for (bool lost = false;;) {
    Job job = Job::kNone;
    {
      absl::MutexLock lock(&mutex_);
      device_job_ = Job::kNone;
      while ((job = NextJob()) == Job::kNone && !stop_device_) {
        const WatchedWait wait;
        device_wake_.WaitWithTimeout(&mutex_, launched_.empty() ? kIdleBeat : kReadyPoll);
        // A device that hangs must look like it.
        if (launched_.empty() || model_.runner->sampling_due()) heartbeat_.Beat();
      }
      device_job_ = job;
    }
    heartbeat_.Beat();
    // Meeting the others and warming up have times of their own.
    if (job == Job::kEnd || job == Job::kJoin || job == Job::kWarmup) StopWatching();
    switch (job) {
      case Job::kNone:
        return;
      case Job::kEnd:
        RunEnd();
        break;
      case Job::kJoin:
        RunJoin();
        break;
      case Job::kWarmup:
        RunWarmup();
        break;
      case Job::kLaunch:
        RunLaunch();
        break;
      case Job::kSample:
        RunSample();
        break;
      case Job::kTake:
        RunTake();
        break;
    }
    // Nothing works on a lost device, whatever the job was; its callers have been answered.
    const absl::Status device = model_.runner->device_status();
    if (!device.ok() && !std::exchange(lost, true)) {
      options_.on_stuck(std::string(device.message()));
    }
  }
}

Executor::Job Executor::NextJob() const {
  if (current_ != nullptr && current_->ending) return Job::kEnd;
  if (current_ == nullptr) return pending_join_.has_value() ? Job::kJoin : Job::kNone;
  if (!warmup_calls_.empty()) return Job::kWarmup;
  const bool failed = !launched_.empty() && !launched_.back().launch_status.ok();
  // Until its rows have been sampled no other step is launched behind it.
  const bool sampling_due = !failed && !launched_.empty() && model_.runner->sampling_due();
  if (sampling_due && launched_.back().batch.masks->Settled()) return Job::kSample;
  // First what keeps the device busy.
  if (!prepared_.empty() && !failed && !sampling_due &&
      launched_.size() < model_.runner->launches_max()) {
    return Job::kLaunch;
  }
  if (launched_.empty()) return Job::kNone;
  if (sampling_due && launched_.size() == 1) return Job::kNone;
  const bool ended = !launched_.front().launch_status.ok() || model_.runner->Ready();
  return ended ? Job::kTake : Job::kNone;
}

void Executor::RunEnd() {
  bool joined = false;
  bool kept = false;
  {
    absl::MutexLock lock(&mutex_);
    joined = current_->joined;
    kept = current_->pauses;
  }
  if (kept) {
    kept = model_.runner->PauseEpoch(kPausePatience);
  } else if (joined) {
    model_.runner->EndEpoch();
  }
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    kept_epoch_ = kept ? current_->number : 0;
    for (PreparedStep& step : launched_) {
      step.result = absl::AbortedError("the epoch was ended while the step ran");
      results_.push_back(std::move(step));
    }
    launched_.clear();
    step_wake_.Signal();
    if (joined) {
      WEFT_LOG_INFO("left the group epoch={}{}", current_->number,
                    kept ? " communicator=kept" : "");
    }
    current_.reset();
    leave_deadline_ = absl::InfiniteFuture();
    for (Done& done : leave_calls_) answers.emplace_back(std::move(done), absl::OkStatus());
    leave_calls_.clear();
  }
  Send(std::move(answers));
}

void Executor::RunJoin() {
  // A step may take long where CPU cores are the device.
  if (model_.facts.device() == "cpu") WatchAsComputing();
  std::optional<PendingJoin> join;
  {
    absl::MutexLock lock(&mutex_);
    join.swap(pending_join_);
    // LeaveGroup may have taken it since.
    if (!join.has_value()) return;
    current_ = join->epoch;
  }
  absl::Status status = Join(*join);
  {
    absl::MutexLock lock(&mutex_);
    EpochState& epoch = *join->epoch;
    epoch.joined = status.ok();
    // All ranks that will ever come have mapped it.
    if (membership_.fence() == epoch.number) model_.meeting->Withdraw(epoch.number);
    if (!status.ok() && !epoch.ending) {
      epoch.ending = true;
    } else if (status.ok() && epoch.ending) {
      status = absl::AbortedError("the epoch was ended while it was joined");
    }
  }
  if (status.ok()) {
    WEFT_LOG_INFO("joined the group epoch={} rank={}{}", join->epoch->number, options_.rank,
                  join->kept_epoch != 0 ? " communicator=kept" : "");
  } else if (join_fault_ != status) {
    // A router tries again for as long as it is so.
    WEFT_LOG_WARN("could not join epoch={}: {}", join->epoch->number, status.ToString());
  }
  join_fault_ = status;
  join->done(std::move(status));
}

absl::Status Executor::Join(PendingJoin& join) {
  const auto ended = [] { return absl::AbortedError("the epoch was ended while it was joined"); };
  WEFT_RETURN_IF_ERROR(TakeKept(join.kept_epoch));
  if (join.kept_epoch != 0) return model_.runner->ResumeEpoch();
  {
    absl::MutexLock lock(&mutex_);
    if (join.epoch->ending) return ended();
    meeting_ = true;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> communicator =
      model_.meeting->Meet({join.epoch->number, join.token, options_.rank, options_.world,
                            join.deadline, options_.peer_timeout, &heartbeat_});
  {
    absl::MutexLock lock(&mutex_);
    meeting_ = false;
    WEFT_RETURN_IF_ERROR(communicator.status());
    if (join.epoch->ending) return ended();
  }
  return model_.runner->BeginEpoch(*std::move(communicator), join.isa);
}

absl::Status Executor::TakeKept(Epoch wanted) {
  Epoch kept = 0;
  {
    absl::MutexLock lock(&mutex_);
    kept = std::exchange(kept_epoch_, 0);
  }
  if (kept == wanted) return absl::OkStatus();
  if (kept != 0) model_.runner->EndEpoch();
  if (wanted == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("kept_epoch: this shard has not kept the communicator of epoch ", wanted));
}

void Executor::RunWarmup() {
  bool ending = false;
  {
    absl::MutexLock lock(&mutex_);
    ending = current_->ending;
  }
  absl::StatusOr<WarmupResult> result = absl::AbortedError("the epoch is ending");
  if (!ending) result = model_.runner->Warmup();
  if (result.ok() && result->kv_blocks == 0) {
    result = absl::ResourceExhaustedError("the KV pool holds no block (--kv-memory)");
  }
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status status = result.status();
    if (current_->ending) status = absl::AbortedError("the epoch is ending");
    if (status.ok()) {
      StepLimits limits = model_.limits;
      limits.kv_blocks = result->kv_blocks;
      v1::WarmupResponse response;
      for (size_t i = 0; i < limits.kv_windows.size(); ++i) {
        response.add_kv_blocks(result->kv_blocks);
      }
      for (const WarmupResult::Cost& cost : result->costs) {
        v1::StepCost* out = response.add_costs();
        out->set_rows(cost.rows);
        out->set_prompt_tokens(cost.prompt_tokens);
        out->set_context_tokens(cost.context_tokens);
        out->set_step_us(cost.step_us);
      }
      current_->inputs = std::make_unique<StepInputs>(limits);
      for (WarmupCall& call : warmup_calls_) *call.response = response;
      current_->warmup = std::move(response);
    }
    for (WarmupCall& call : warmup_calls_) answers.emplace_back(std::move(call.done), status);
    warmup_calls_.clear();
  }
  Send(std::move(answers));
  if (absl::IsDataLoss(result.status()) && options_.on_broken_model != nullptr) {
    options_.on_broken_model(std::string(result.status().message()));
  }
}

void Executor::RunLaunch() {
  PreparedStep* step = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    // LeaveGroup may have failed it since.
    if (prepared_.empty()) return;
    launched_.push_back(std::move(prepared_.front()));
    prepared_.erase(prepared_.begin());
    step = &launched_.back();
    step_wake_.Signal();
  }
  step->queue_us = ClampUs(options_.clock->NowUs() - step->call.arrived_us - step->host_us);
  // An error waits for its turn: steps launched before count.
  step->launch_status = model_.runner->Launch(step->batch);
}

void Executor::RunSample() {
  PreparedStep* step = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    step = &launched_.back();
  }
  step->launch_status = model_.runner->LaunchSampling();
}

void Executor::RunTake() {
  const PreparedStep* step = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    step = &launched_.front();
  }
  absl::StatusOr<StepResult> result =
      step->launch_status.ok() ? model_.runner->Take() : step->launch_status;
  if (result.ok()) {
    if (absl::Status status = CheckResult(step->batch, *result); !status.ok()) {
      result = std::move(status);
    }
  }
  FinishStep(std::move(result));
}

void Executor::FinishStep(absl::StatusOr<StepResult> result) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    PreparedStep step = std::move(launched_.front());
    launched_.pop_front();
    step.result = std::move(result);
    if (!step.result.ok() && !step.epoch->ending) {
      const absl::Status& status = step.result.status();
      if (absl::IsAborted(status)) {
        // Another rank left or lost the group first, and says why where it is a fault.
        WEFT_LOG_INFO("step cut short epoch={} step={}: {}", step.batch.epoch, step.batch.step,
                      std::string(status.message()));
      } else {
        WEFT_LOG_ERROR("step failed epoch={} step={}: {}", step.batch.epoch, step.batch.step,
                       status.ToString());
      }
      Break(*step.epoch, step.batch.step, step.result.status(), &answers);
      FailPrepared(step.epoch->broken, &answers);
      // Ranks that wait for this one in the same step learn of it at once.
      AbortDevice();
    }
    results_.push_back(std::move(step));
    step_wake_.Signal();
  }
  Send(std::move(answers));
}

}  // namespace weft::shard

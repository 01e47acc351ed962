// An executor over a fake runner, with calls that wait: the rig of the executor's tests.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/log.h"
#include "shard/comm/host_meeting.h"
#include "shard/control/executor.h"
#include "tests/shard/control/step_builder.h"
#include "tests/support/fake_model_runner.h"

namespace weft::shard {

inline constexpr uint64_t kRouter = 77;

// A call in flight, its request and response.
template <typename Request, typename Response>
struct Pending {
  Request request;
  Response response;
  absl::Notification done;
  absl::Status status;

  Executor::Done Callback() {
    return [this](absl::Status s) {
      status = std::move(s);
      done.Notify();
    };
  }
  const absl::Status& Wait() {
    done.WaitForNotification();
    return status;
  }
};

using PendingPrefill = Pending<v1::PrefillRequest, v1::StepResponse>;
using PendingDecode = Pending<v1::DecodeRequest, v1::StepResponse>;
using PendingFilter = Pending<v1::FilterBatchRequest, v1::StepResponse>;
using PendingLeave = Pending<v1::LeaveGroupRequest, v1::LeaveGroupResponse>;
using PendingJoin = Pending<v1::JoinGroupRequest, v1::JoinGroupResponse>;
using PendingWarmup = Pending<v1::WarmupRequest, v1::WarmupResponse>;

class ExecutorRig {
 public:
  explicit ExecutorRig(FakeRunnerOptions fake = {}, ExecutorOptions options = {}) {
    spdlog::set_level(spdlog::level::off);
    options.on_stuck = [this](const std::string&) { stuck.store(true); };
    rank_ = options.rank;
    world_ = options.world;
    v1::InfoResponse facts;
    facts.set_rank(rank_);
    facts.set_world(world_);
    executor = std::make_unique<Executor>(std::move(options), facts, progress);
    fake_ = fake;
    model_facts_ = facts;
  }

  // LOADING -> READY.
  void Load() {
    LoadedModel model;
    auto owned = std::make_unique<FakeModelRunner>(fake_);
    runner = owned.get();
    model.runner = std::move(owned);
    model.facts = model_facts_;
    model.facts.set_vocab_size(fake_.vocab_size);
    model.limits.vocab_size = fake_.vocab_size;
    model.limits.context_tokens = 256;
    model.limits.running_max = 8;
    model.limits.step_tokens_max = 64;
    model.limits.block_tokens = fake_.block_tokens;
    model.meeting = MakeHostMeeting(64);
    model.isa = [] { return std::string("fake"); };
    executor->SetReady(std::move(model));
  }

  v1::InfoResponse Info() const {
    v1::InfoResponse response;
    executor->Info(&response);
    return response;
  }

  absl::StatusOr<std::string> Rendezvous(uint64_t epoch, uint64_t router = kRouter) {
    v1::RendezvousRequest request;
    request.set_epoch(epoch);
    request.set_router_id(router);
    request.set_world(world_);
    v1::RendezvousResponse response;
    absl::Status status = executor->Rendezvous(request, &response);
    if (!status.ok()) return status;
    return response.token();
  }

  void StartJoin(PendingJoin* call, uint64_t epoch, const std::string& token,
                 uint64_t router = kRouter) {
    call->request.set_epoch(epoch);
    call->request.set_router_id(router);
    call->request.set_rank(rank_);
    call->request.set_world(world_);
    call->request.set_token(token);
    executor->JoinGroup(call->request, call->Callback());
  }

  absl::Status Join(uint64_t epoch, const std::string& token = "", uint64_t router = kRouter) {
    PendingJoin call;
    StartJoin(&call, epoch, token, router);
    return call.Wait();
  }

  // Goes on with the communicator of `kept_epoch`.
  absl::Status Rejoin(uint64_t epoch, uint64_t kept_epoch, uint64_t router = kRouter) {
    PendingJoin call;
    call.request.set_kept_epoch(kept_epoch);
    StartJoin(&call, epoch, "", router);
    return call.Wait();
  }

  void StartLeave(PendingLeave* call, uint64_t epoch, uint64_t router = kRouter) {
    call->request.set_epoch(epoch);
    call->request.set_router_id(router);
    executor->LeaveGroup(call->request, call->Callback());
  }

  absl::Status Leave(uint64_t epoch, uint64_t router = kRouter) {
    PendingLeave call;
    StartLeave(&call, epoch, router);
    return call.Wait();
  }

  // As a router that finds the group whole.
  absl::Status Pause(uint64_t epoch, uint64_t router = kRouter) {
    PendingLeave call;
    call.request.set_keep(true);
    StartLeave(&call, epoch, router);
    return call.Wait();
  }

  void StartWarmup(PendingWarmup* call, uint64_t epoch, uint64_t router = kRouter) {
    call->request.set_epoch(epoch);
    call->request.set_router_id(router);
    executor->Warmup(call->request, &call->response, call->Callback());
  }

  absl::Status Warmup(uint64_t epoch) {
    PendingWarmup call;
    StartWarmup(&call, epoch);
    return call.Wait();
  }

  // Joins and warms up a group of one.
  absl::Status Form(uint64_t epoch) {
    absl::Status status = Join(epoch);
    return status.ok() ? Warmup(epoch) : status;
  }

  template <typename Call>
  void Start(Call* call) {
    StepCall step;
    step.request = &call->request;
    step.response = &call->response;
    step.done = call->Callback();
    executor->Step(std::move(step));
  }

  template <typename Call>
  absl::Status Run(Call* call) {
    Start(call);
    return call->Wait();
  }

  LoadProgress progress;
  std::atomic<bool> stuck{false};
  std::unique_ptr<Executor> executor;
  // Owned by the executor.
  FakeModelRunner* runner = nullptr;

 private:
  Rank rank_ = 0;
  uint32_t world_ = 1;
  FakeRunnerOptions fake_;
  v1::InfoResponse model_facts_;
};

// A Prefill of the whole prompt {1, 2, 3} of sequence 5 into slot 0, block 0.
inline void MakePrefill(PendingPrefill* call, uint64_t epoch, uint64_t step) {
  SetHeader(call->request.mutable_header(), epoch, step);
  AddBlocks(call->request.mutable_header(), 0, {0});
  AddFirstChunk(&call->request, 0, 5, {1, 2, 3}, true, 3);
}

inline void MakeDecode(PendingDecode* call, uint64_t epoch, uint64_t step) {
  SetHeader(call->request.mutable_header(), epoch, step);
}

// The token the fake samples after `log`, appended to it.
inline TokenId Expect(std::vector<TokenId>* log) {
  const TokenId next = FakeModelRunner::NextToken(*log, FakeRunnerOptions{}.vocab_size);
  log->push_back(next);
  return next;
}

inline ExecutorOptions RankOptions(Rank rank, uint32_t world) {
  ExecutorOptions options;
  options.rank = rank;
  options.world = world;
  return options;
}

// Blocks the device thread until the test lets it go; counts who came.
struct Gate {
  absl::Mutex mutex;
  int arrived = 0;
  bool open = false;

  absl::Status Pass() {
    absl::MutexLock lock(&mutex);
    ++arrived;
    mutex.Await(absl::Condition(&open));
    return absl::OkStatus();
  }
  void AwaitArrived(int count) {
    absl::MutexLock lock(&mutex);
    const auto here = [&] { return arrived >= count; };
    mutex.Await(absl::Condition(&here));
  }
  void Open() {
    absl::MutexLock lock(&mutex);
    open = true;
  }
};

}  // namespace weft::shard

#include "tests/support/mock_process.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/version.h"
#include "tests/support/grpc_threads.h"

namespace weft::testing {
namespace {

namespace wire = weft::shard::v1;

using Reactor = grpc::ServerUnaryReactor;

// No process has such a number, so nothing can be read about it.
std::atomic<uint64_t> next_pid{uint64_t{1} << 40};

grpc::Status Refuse(grpc::StatusCode code, const std::string& why) {
  return grpc::Status(code, why);
}

uint32_t HashOf(const google::protobuf::RepeatedField<uint32_t>& ids) {
  uint32_t hash = 2166136261u;
  for (uint32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ ((id >> shift) & 255)) * 16777619u;
  }
  return hash;
}

}  // namespace

MockProcess::MockProcess(const MockShardOptions& options, MockProcessOwner* owner)
    : owner_(*owner), options_(options), pid_(next_pid.fetch_add(1)), model_(options_.shape) {
  KeepGrpcThreads();
  unlink(options_.socket.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("unix:", options_.socket),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kShardMessageBytesMax));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  server_ = builder.BuildAndStart();
  WEFT_CHECK_MSG(server_ != nullptr, options_.socket);
  device_ = Thread("mock-device", [this] { DeviceLoop(); });
}

// -- Calls ---------------------------------------------------------------------------------------

Reactor* MockProcess::Info(grpc::CallbackServerContext* context, const wire::InfoRequest*,
                           wire::InfoResponse* response) {
  {
    absl::MutexLock lock(&mutex_);
    response->set_protocol_version(kShardProtocolVersion);
    response->mutable_build()->set_version(Version());
    response->set_spec_hash(options_.spec_hash);
    response->set_rank(options_.rank);
    response->set_world(options_.world);
    response->set_device("cpu");
    response->set_isa("mock");
    response->set_deterministic(true);
    response->add_isa_supported("mock");
    response->set_dtype(weft::v1::DATA_TYPE_FLOAT32);
    response->set_kv_dtype(weft::v1::DATA_TYPE_FLOAT32);
    for (const uint32_t window : options_.shape.kv_windows) {
      wire::KvGroup* group = response->add_kv_groups();
      group->set_layers(1);
      group->set_window_tokens(window);
      group->set_block_tokens(options_.shape.block_tokens);
    }
    const bool loaded = infos_++ >= options_.loading_answers;
    response->mutable_load()->set_bytes_total(100);
    response->mutable_load()->set_bytes_done(loaded ? 100 : 50);
    response->set_state(!loaded   ? wire::SHARD_STATE_LOADING
                        : joined_ ? wire::SHARD_STATE_JOINED
                                  : wire::SHARD_STATE_READY);
    response->set_epoch(joined_ ? epoch_ : fence_);
    response->set_vocab_size(options_.shape.vocabulary.size);
    response->set_context_tokens(options_.shape.context_tokens);
    response->set_running_max(options_.shape.running_max);
    response->set_step_tokens_max(options_.shape.step_tokens_max);
    response->set_pid(pid_);
    response->set_holder_router_id(holder_id_);
    response->set_family("mock");
    response->set_parameters(1);
  }
  Reactor* reactor = context->DefaultReactor();
  Finish(context, reactor, grpc::Status::OK);
  return reactor;
}

// A Hold call; its cancellation ends the claim.
class MockProcess::HoldReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit HoldReactor(MockProcess* process) : process_(*process) {}
  void OnCancel() override { process_.EndHold(this); }
  void OnDone() override { std::unique_ptr<HoldReactor> ended(this); }

 private:
  MockProcess& process_;
};

Reactor* MockProcess::Hold(grpc::CallbackServerContext*, const wire::HoldRequest* request,
                           wire::HoldResponse*) {
  Reactor* reactor = std::make_unique<HoldReactor>(this).release();
  Reactor* ended = nullptr;
  grpc::Status status;
  grpc::Status why;
  bool held = false;
  {
    absl::MutexLock lock(&mutex_);
    const bool mine = holder_id_ == request->router_id();
    const bool later = request->launcher_id() != 0 && request->launcher_id() == launcher_id_ &&
                       request->generation() > generation_;
    if (request->release()) {
      if (mine) std::swap(ended, hold_);
      why = grpc::Status::CANCELLED;
    } else if (holder_id_ != 0 && !mine && !later) {
      status = Refuse(grpc::StatusCode::ALREADY_EXISTS, "another router holds this shard");
    } else {
      ended = hold_;
      why = mine ? Refuse(grpc::StatusCode::ABORTED, "claimed anew")
                 : Refuse(grpc::StatusCode::FAILED_PRECONDITION, "a later start took over");
      hold_ = reactor;
      held = true;
      holder_id_ = request->router_id();
      launcher_id_ = request->launcher_id();
      generation_ = request->generation();
    }
    if (hold_ == nullptr) holder_id_ = 0;
  }
  if (ended != nullptr) ended->Finish(why);
  if (!held) reactor->Finish(status);
  return reactor;
}

void MockProcess::EndHold(Reactor* reactor) {
  {
    absl::MutexLock lock(&mutex_);
    if (hold_ != reactor) return;
    hold_ = nullptr;
    holder_id_ = 0;
  }
  reactor->Finish(grpc::Status::CANCELLED);
}

bool MockProcess::Faulty(const char* call, Epoch epoch, grpc::CallbackServerContext* context,
                         Reactor* reactor) {
  const MockFault fault = owner_.Ask({call, epoch, 0, 0, 0, {}, {}, {}, {}});
  if (fault == MockFault::kNone) return false;
  if (fault == MockFault::kError) {
    Finish(context, reactor, Refuse(grpc::StatusCode::INTERNAL, "asked to fail"));
    return true;
  }
  {
    absl::MutexLock lock(&mutex_);
    hung_ = true;
    parked_.push_back({context, reactor});
  }
  if (fault == MockFault::kDie) owner_.DieSoon();
  return true;
}

Reactor* MockProcess::Rendezvous(grpc::CallbackServerContext* context,
                                 const wire::RendezvousRequest* request,
                                 wire::RendezvousResponse* response) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("Rendezvous", request->epoch(), context, reactor)) return reactor;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (options_.rank != 0 || request->world() != options_.world ||
        request->router_id() != holder_id_ || request->router_id() == 0 || joined_ ||
        request->epoch() <= fence_) {
      status = Refuse(grpc::StatusCode::FAILED_PRECONDITION, "Rendezvous does not fit");
    } else {
      fence_ = request->epoch();
      router_id_ = request->router_id();
      response->set_token(absl::StrCat("mock-", fence_));
    }
  }
  if (!status.ok()) owner_.AddViolation(status.error_message());
  Finish(context, reactor, status);
  return reactor;
}

Reactor* MockProcess::JoinGroup(grpc::CallbackServerContext* context,
                                const wire::JoinGroupRequest* request, wire::JoinGroupResponse*) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("JoinGroup", request->epoch(), context, reactor)) return reactor;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    const bool fits = request->router_id() == holder_id_ && request->rank() == options_.rank &&
                      request->world() == options_.world &&
                      request->token() == absl::StrCat("mock-", request->epoch()) &&
                      request->isa() == "mock" && request->epoch() >= fence_ &&
                      request->epoch() > epoch_ && !joined_;
    if (!fits) {
      status = Refuse(grpc::StatusCode::FAILED_PRECONDITION, "JoinGroup does not fit");
    } else {
      epoch_ = fence_ = request->epoch();
      router_id_ = request->router_id();
      joined_ = true;
      warm_ = false;
      abort_ = false;
      next_step_ = 1;
    }
  }
  if (!status.ok()) owner_.AddViolation(status.error_message());
  owner_.AddEpoch();
  Finish(context, reactor, status);
  return reactor;
}

Reactor* MockProcess::LeaveGroup(grpc::CallbackServerContext* context,
                                 const wire::LeaveGroupRequest* request,
                                 wire::LeaveGroupResponse*) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("LeaveGroup", request->epoch(), context, reactor)) return reactor;
  std::map<StepNumber, StepCall> left;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (joined_ && (request->epoch() < epoch_ ||
                    (request->epoch() == epoch_ && request->router_id() != router_id_))) {
      status = Refuse(grpc::StatusCode::FAILED_PRECONDITION, "another router's epoch");
    } else if (holder_id_ != 0 && request->router_id() != holder_id_) {
      status = Refuse(grpc::StatusCode::ALREADY_EXISTS, "another router holds this shard");
    } else {
      abort_ = true;
      left.swap(steps_);
      mutex_.Await(absl::Condition(this, &MockProcess::DeviceIdle));
      joined_ = false;
      fence_ = std::max<Epoch>(fence_, request->epoch());
    }
  }
  for (auto& [step, call] : left) {
    Finish(call.context, call.reactor, Refuse(grpc::StatusCode::ABORTED, "left the group"));
  }
  {
    absl::MutexLock lock(&model_mutex_);
    model_.Reset();
  }
  Finish(context, reactor, status);
  return reactor;
}

Reactor* MockProcess::Warmup(grpc::CallbackServerContext* context,
                             const wire::WarmupRequest* request, wire::WarmupResponse* response) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("Warmup", request->epoch(), context, reactor)) return reactor;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = CheckEpoch(request->epoch());
    if (status.ok()) {
      warm_ = true;
      for (size_t i = 0; i < options_.shape.kv_windows.size(); ++i) {
        response->add_kv_blocks(options_.shape.kv_blocks);
      }
      for (uint32_t rows : {1u, 32u}) {
        wire::StepCost* cost = response->add_costs();
        cost->set_rows(rows);
        cost->set_context_tokens(rows * 64);
        cost->set_step_us(static_cast<uint32_t>(std::max<int64_t>(options_.step_us, 100)));
      }
    }
  }
  Finish(context, reactor, status);
  return reactor;
}

// -- Steps ---------------------------------------------------------------------------------------

grpc::Status MockProcess::CheckEpoch(Epoch epoch) const {
  if (joined_ && epoch == epoch_) return grpc::Status::OK;
  return Refuse(grpc::StatusCode::FAILED_PRECONDITION, absl::StrCat("not in epoch ", epoch));
}

Reactor* MockProcess::Enqueue(const StepCall& call, const wire::StepHeader& header, size_t bytes) {
  grpc::Status status;
  size_t in_flight = 0;
  bool bad_number = false;
  {
    absl::MutexLock lock(&mutex_);
    status = CheckEpoch(header.epoch());
    if (status.ok() && !warm_) {
      status = Refuse(grpc::StatusCode::FAILED_PRECONDITION, "not warm");
    }
    if (status.ok()) {
      bad_number = header.step() < next_step_ || header.step() >= next_step_ + 8;
      StepCall arrived = call;
      arrived.arrived_us = MonotonicClock().NowUs();
      if (bad_number || !steps_.emplace(header.step(), arrived).second) {
        status = Refuse(grpc::StatusCode::FAILED_PRECONDITION, "step out of order");
      }
      in_flight = steps_.size() + (busy_ ? 1 : 0);
    }
  }
  if (bad_number) owner_.AddViolation(absl::StrCat("step ", header.step(), " out of order"));
  owner_.AddArrival(in_flight, bytes);
  if (!status.ok()) Finish(call.context, call.reactor, status);
  return call.reactor;
}

void MockProcess::DeviceLoop() {
  while (true) {
    StepCall call;
    StepNumber step;
    Epoch epoch;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &MockProcess::DeviceReady));
      if (dead_) return;
      step = next_step_++;
      epoch = epoch_;
      call = steps_.begin()->second;
      steps_.erase(steps_.begin());
      busy_ = true;
    }
    RunStep(step, epoch, call);
  }
}

void MockProcess::RunStep(StepNumber step, Epoch epoch, const StepCall& call) {
  MockMoment moment{call.name, epoch, step, 0, 0, {}, {}, {}, {}};
  if (call.prefill != nullptr) {
    for (const auto& chunk : call.prefill->chunks()) {
      moment.partial_chunks += !chunk.last();
      moment.prefilling.push_back(chunk.sequence());
      if (chunk.last()) moment.completing.push_back(chunk.sequence());
      if (chunk.start() == 0) moment.begun.emplace_back(chunk.sequence(), chunk.ids(0));
    }
  }
  {
    absl::MutexLock lock(&model_mutex_);
    if (call.prefill != nullptr && call.prefill->with_decode()) {
      model_.AddRows(call.prefill->header(), call.prefill->skip_slots(), &moment.decoding);
    } else if (call.decode != nullptr) {
      model_.AddRows(call.decode->header(), call.decode->skip_slots(), &moment.decoding);
    }
  }
  const MockFault fault = owner_.Ask(moment);
  if (fault == MockFault::kDie || fault == MockFault::kHang) {
    {
      absl::MutexLock lock(&mutex_);
      hung_ = true;
      busy_ = false;
    }
    if (fault == MockFault::kDie) owner_.DieSoon();
    return Finish(call.context, call.reactor, grpc::Status::OK);  // parked
  }
  const int64_t start_us = MonotonicClock().NowUs();
  grpc::Status status;
  if (!Spend(options_.step_us + (fault == MockFault::kLate ? options_.late_us : 0))) {
    status = Refuse(grpc::StatusCode::ABORTED, "the step was aborted");
  } else if (fault == MockFault::kError) {
    failed_epoch_ = epoch;
    status = Refuse(grpc::StatusCode::INTERNAL, "asked to fail");
  } else if (failed_epoch_ == epoch) {
    // The step behind the failed one is on its way already; the model lacks what that one brought.
    status = Refuse(grpc::StatusCode::ABORTED, "an earlier step of the epoch failed");
  } else if (status = AwaitMasks(step, call); status.ok()) {
    absl::MutexLock lock(&model_mutex_);
    if (call.prefill != nullptr) model_.Prefill(*call.prefill, call.response);
    if (call.decode != nullptr) model_.Decode(*call.decode, call.response);
    if (call.filter != nullptr) model_.Filter(*call.filter);
  }
  const int64_t end_us = MonotonicClock().NowUs();
  wire::StepResponse& response = *call.response;
  response.set_epoch(fault == MockFault::kWrongEpoch ? epoch + 1 : epoch);
  response.set_step(step);
  response.set_ids_hash(HashOf(response.ids()) ^ (fault == MockFault::kWrongHash ? 1u : 0u));
  response.mutable_timings()->set_device_us(static_cast<uint32_t>(end_us - start_us));
  if (options_.rank != 0) {
    response.clear_ids();
    response.clear_slots();
    response.clear_logprobs();
    response.clear_scores();
  }
  owner_.AddBusy(std::max<int64_t>(call.arrived_us - last_end_us_, 0), start_us, end_us);
  last_end_us_ = end_us;
  {
    absl::MutexLock lock(&mutex_);
    busy_ = false;
  }
  Finish(call.context, call.reactor, status);
}

Reactor* MockProcess::MaskRows(grpc::CallbackServerContext* context,
                               const wire::MaskRowsRequest* request, wire::MaskRowsResponse*) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("MaskRows", request->epoch(), context, reactor)) return reactor;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = CheckEpoch(request->epoch());
    if (status.ok()) {
      absl::MutexLock model_lock(&model_mutex_);
      model_.AddMasks(*request);
      ++mask_calls_;
    }
  }
  Finish(context, reactor, status);
  return reactor;
}

bool MockProcess::MasksReady(const StepCall& call) const {
  absl::MutexLock lock(&model_mutex_);
  if (call.prefill != nullptr) return model_.MasksReady(*call.prefill);
  return call.decode == nullptr || model_.MasksReady(*call.decode);
}

grpc::Status MockProcess::AwaitMasks(StepNumber step, const StepCall& call) {
  const absl::Time deadline = absl::Now() + absl::Microseconds(kMaskWaitUsMax);
  uint64_t seen = 0;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      seen = mask_calls_;
    }
    if (MasksReady(call)) return grpc::Status::OK;
    absl::MutexLock lock(&mutex_);
    const auto news = [this, seen]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return Interrupted() || mask_calls_ != seen;
    };
    const bool in_time = mutex_.AwaitWithDeadline(absl::Condition(&news), deadline);
    if (Interrupted()) return Refuse(grpc::StatusCode::ABORTED, "the step was aborted");
    if (in_time) continue;
    owner_.AddViolation(absl::StrCat("the masks of step ", step, " have not come"));
    return Refuse(grpc::StatusCode::DEADLINE_EXCEEDED, "masks have not come");
  }
}

bool MockProcess::Spend(int64_t duration_us) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(this, &MockProcess::Interrupted),
                                  absl::Microseconds(duration_us));
}

// -- Life ----------------------------------------------------------------------------------------

void MockProcess::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    if (dead_) return;
    dead_ = true;
  }
  device_.Join();
  std::atomic<bool> down{false};
  Thread shutdown("mock-down", [&] {
    server_->Shutdown(std::chrono::system_clock::now());
    down.store(true);
  });
  // Calls in flight are cancelled by the server's end and only then let go, so that the router sees
  // a broken connection and never an answer.
  while (!down.load()) {
    std::vector<Parked> calls;
    {
      absl::MutexLock lock(&mutex_);
      for (auto& [step, call] : steps_) parked_.push_back({call.context, call.reactor});
      steps_.clear();
      const auto cancelled =
          std::stable_partition(parked_.begin(), parked_.end(),
                                [](const Parked& p) { return !p.context->IsCancelled(); });
      calls.assign(cancelled, parked_.end());
      parked_.erase(cancelled, parked_.end());
    }
    for (const Parked& call : calls) call.reactor->Finish(grpc::Status::CANCELLED);
    absl::SleepFor(absl::Milliseconds(1));
  }
  shutdown.Join();
  server_.reset();
  unlink(options_.socket.c_str());
}

}  // namespace weft::testing

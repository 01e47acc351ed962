#include "tests/support/mock_shard.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/thread.h"
#include "common/version.h"
#include "proto/shard.grpc.pb.h"

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

class MockShard::Impl {
 public:
  explicit Impl(const MockShardOptions& options) : options_(options) {}

  class Process;

  MockFault Ask(MockMoment moment) {
    std::function<MockFault(const MockMoment&)> faults;
    {
      absl::MutexLock lock(&mutex_);
      moment.before = counts_[moment.call]++;
      faults = faults_;
    }
    return faults ? faults(moment) : MockFault::kNone;
  }
  // Kills the process from one of its own threads.
  void DieSoon();
  void Kill();
  void Start();

  void AddBusy(int64_t start_us, int64_t end_us) {
    absl::MutexLock lock(&mutex_);
    ++totals_.steps;
    totals_.busy_us += end_us - start_us;
    if (first_start_us_ == 0) first_start_us_ = start_us;
    totals_.span_us = end_us - first_start_us_;
  }
  void AddArrival(size_t in_flight, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    totals_.in_flight_max = std::max<uint64_t>(totals_.in_flight_max, in_flight);
    totals_.request_bytes += bytes;
  }
  void AddViolation(const std::string& what) {
    absl::MutexLock lock(&mutex_);
    totals_.violations.push_back(what);
  }
  void AddEpoch() {
    absl::MutexLock lock(&mutex_);
    ++totals_.epochs;
  }
  void AddModel(const MockModel& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    totals_.chunks += model.chunks();
    totals_.mixed_steps += model.mixed_steps();
    totals_.prefix_hits += model.prefix_hits();
    totals_.violations.insert(totals_.violations.end(), model.violations().begin(),
                              model.violations().end());
  }

  const MockShardOptions options_;
  mutable absl::Mutex mutex_;
  std::function<MockFault(const MockMoment&)> faults_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_death_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);
  MockShardStats totals_ ABSL_GUARDED_BY(mutex_);
  int64_t first_start_us_ ABSL_GUARDED_BY(mutex_) = 0;
  // Start and Kill, one at a time.
  absl::Mutex life_mutex_;
  std::shared_ptr<Process> process_ ABSL_GUARDED_BY(mutex_);
  Thread reaper_ ABSL_GUARDED_BY(life_mutex_);
};

// One life of the shard.
class MockShard::Impl::Process final : public wire::ShardService::CallbackService {
 public:
  explicit Process(Impl* owner)
      : owner_(*owner),
        options_(owner->options_),
        pid_(next_pid.fetch_add(1)),
        model_(options_.shape) {
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

  ~Process() override { Stop(); }

  // Everything in flight ends as when a process is killed.
  void Stop();

  uint64_t pid() const { return pid_; }
  Epoch epoch() const {
    absl::MutexLock lock(&mutex_);
    return joined_ ? epoch_ : 0;
  }
  // For stats; the device thread writes it.
  void WithModel(const std::function<void(const MockModel&)>& read) const {
    absl::MutexLock lock(&model_mutex_);
    read(model_);
  }

  Reactor* Info(grpc::CallbackServerContext* context, const wire::InfoRequest*,
                wire::InfoResponse* response) override;
  Reactor* Rendezvous(grpc::CallbackServerContext* context, const wire::RendezvousRequest* request,
                      wire::RendezvousResponse* response) override;
  Reactor* JoinGroup(grpc::CallbackServerContext* context, const wire::JoinGroupRequest* request,
                     wire::JoinGroupResponse*) override;
  Reactor* LeaveGroup(grpc::CallbackServerContext* context, const wire::LeaveGroupRequest* request,
                      wire::LeaveGroupResponse*) override;
  Reactor* Warmup(grpc::CallbackServerContext* context, const wire::WarmupRequest* request,
                  wire::WarmupResponse* response) override;
  Reactor* Prefill(grpc::CallbackServerContext* context, const wire::PrefillRequest* request,
                   wire::StepResponse* response) override {
    StepCall call{context, context->DefaultReactor(), response, "Prefill"};
    call.prefill = request;
    return Enqueue(call, request->header(), request->ByteSizeLong());
  }
  Reactor* Decode(grpc::CallbackServerContext* context, const wire::DecodeRequest* request,
                  wire::StepResponse* response) override {
    StepCall call{context, context->DefaultReactor(), response, "Decode"};
    call.decode = request;
    return Enqueue(call, request->header(), request->ByteSizeLong());
  }
  Reactor* FilterBatch(grpc::CallbackServerContext* context,
                       const wire::FilterBatchRequest* request,
                       wire::StepResponse* response) override {
    StepCall call{context, context->DefaultReactor(), response, "FilterBatch"};
    call.filter = request;
    return Enqueue(call, request->header(), request->ByteSizeLong());
  }

 private:
  struct StepCall {
    grpc::CallbackServerContext* context = nullptr;
    Reactor* reactor = nullptr;
    wire::StepResponse* response = nullptr;
    const char* name = "";
    const wire::PrefillRequest* prefill = nullptr;
    const wire::DecodeRequest* decode = nullptr;
    const wire::FilterBatchRequest* filter = nullptr;
  };
  struct Parked {
    grpc::CallbackServerContext* context;
    Reactor* reactor;
  };

  // Answers unless the shard hangs or is dead.
  void Finish(grpc::CallbackServerContext* context, Reactor* reactor, const grpc::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (hung_ || dead_) {
        parked_.push_back({context, reactor});
        return;
      }
    }
    reactor->Finish(status);
  }
  // Asks for a fault at a call outside the steps; true when the call is done for.
  bool Faulty(const char* call, Epoch epoch, grpc::CallbackServerContext* context,
              Reactor* reactor);
  Reactor* Enqueue(const StepCall& call, const wire::StepHeader& header, size_t bytes);
  void DeviceLoop();
  void RunStep(StepNumber step, Epoch epoch, const StepCall& call);
  // Lets `duration_us` pass; false when the step was aborted.
  bool Spend(int64_t duration_us);
  grpc::Status CheckEpoch(Epoch epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DeviceReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return dead_ || (!hung_ && !steps_.empty() && steps_.begin()->first == next_step_);
  }
  bool Interrupted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return dead_ || abort_; }
  bool DeviceIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_ || dead_; }

  Impl& owner_;
  const MockShardOptions& options_;
  const uint64_t pid_;
  std::unique_ptr<grpc::Server> server_;

  mutable absl::Mutex mutex_;
  bool dead_ ABSL_GUARDED_BY(mutex_) = false;
  bool hung_ ABSL_GUARDED_BY(mutex_) = false;
  bool abort_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  bool warm_ ABSL_GUARDED_BY(mutex_) = false;
  int infos_ ABSL_GUARDED_BY(mutex_) = 0;
  Epoch fence_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t router_id_ ABSL_GUARDED_BY(mutex_) = 0;
  Epoch epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  StepNumber next_step_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<StepNumber, StepCall> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<Parked> parked_ ABSL_GUARDED_BY(mutex_);
  mutable absl::Mutex model_mutex_;
  MockModel model_ ABSL_GUARDED_BY(model_mutex_);
  Thread device_;
};

// -- Calls ---------------------------------------------------------------------------------------

Reactor* MockShard::Impl::Process::Info(grpc::CallbackServerContext* context,
                                        const wire::InfoRequest*, wire::InfoResponse* response) {
  {
    absl::MutexLock lock(&mutex_);
    response->set_protocol_version(kShardProtocolVersion);
    response->mutable_build()->set_version(Version());
    response->set_spec_hash(options_.spec_hash);
    response->set_rank(options_.rank);
    response->set_world(options_.world);
    response->set_device("cpu");
    response->set_isa("mock");
    response->add_isa_supported("mock");
    response->set_dtype(weft::types::v1::DATA_TYPE_FLOAT32);
    response->set_kv_dtype(weft::types::v1::DATA_TYPE_FLOAT32);
    wire::KvGroup* group = response->add_kv_groups();
    group->set_layers(1);
    group->set_block_tokens(options_.shape.block_tokens);
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
    response->set_family("mock");
    response->set_parameters(1);
  }
  Reactor* reactor = context->DefaultReactor();
  Finish(context, reactor, grpc::Status::OK);
  return reactor;
}

bool MockShard::Impl::Process::Faulty(const char* call, Epoch epoch,
                                      grpc::CallbackServerContext* context, Reactor* reactor) {
  const MockFault fault = owner_.Ask({call, epoch, 0, 0, 0});
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

Reactor* MockShard::Impl::Process::Rendezvous(grpc::CallbackServerContext* context,
                                              const wire::RendezvousRequest* request,
                                              wire::RendezvousResponse* response) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("Rendezvous", request->epoch(), context, reactor)) return reactor;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (options_.rank != 0 || request->world() != options_.world || request->router_id() == 0 ||
        joined_ || request->epoch() <= fence_) {
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

Reactor* MockShard::Impl::Process::JoinGroup(grpc::CallbackServerContext* context,
                                             const wire::JoinGroupRequest* request,
                                             wire::JoinGroupResponse*) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("JoinGroup", request->epoch(), context, reactor)) return reactor;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    const bool fits = request->rank() == options_.rank && request->world() == options_.world &&
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

Reactor* MockShard::Impl::Process::LeaveGroup(grpc::CallbackServerContext* context,
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
    } else {
      abort_ = true;
      left.swap(steps_);
      mutex_.Await(absl::Condition(this, &Process::DeviceIdle));
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

Reactor* MockShard::Impl::Process::Warmup(grpc::CallbackServerContext* context,
                                          const wire::WarmupRequest* request,
                                          wire::WarmupResponse* response) {
  Reactor* reactor = context->DefaultReactor();
  if (Faulty("Warmup", request->epoch(), context, reactor)) return reactor;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = CheckEpoch(request->epoch());
    if (status.ok()) {
      warm_ = true;
      response->add_kv_blocks(options_.shape.kv_blocks);
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

grpc::Status MockShard::Impl::Process::CheckEpoch(Epoch epoch) const {
  if (joined_ && epoch == epoch_) return grpc::Status::OK;
  return Refuse(grpc::StatusCode::FAILED_PRECONDITION, absl::StrCat("not in epoch ", epoch));
}

Reactor* MockShard::Impl::Process::Enqueue(const StepCall& call, const wire::StepHeader& header,
                                           size_t bytes) {
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
      if (bad_number || !steps_.emplace(header.step(), call).second) {
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

void MockShard::Impl::Process::DeviceLoop() {
  while (true) {
    StepCall call;
    StepNumber step;
    Epoch epoch;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Process::DeviceReady));
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

void MockShard::Impl::Process::RunStep(StepNumber step, Epoch epoch, const StepCall& call) {
  MockMoment moment{call.name, epoch, step, 0, 0};
  if (call.prefill != nullptr) {
    for (const auto& chunk : call.prefill->chunks()) moment.partial_chunks += !chunk.last();
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
    status = Refuse(grpc::StatusCode::INTERNAL, "asked to fail");
  } else {
    absl::MutexLock lock(&model_mutex_);
    if (call.prefill != nullptr) model_.Prefill(*call.prefill, call.response);
    if (call.decode != nullptr) model_.Decode(*call.decode, call.response);
    if (call.filter != nullptr) model_.Filter(*call.filter);
  }
  const int64_t end_us = MonotonicClock().NowUs();
  wire::StepResponse& response = *call.response;
  response.set_epoch(epoch);
  response.set_step(step);
  response.set_ids_hash(HashOf(response.ids()) ^ (fault == MockFault::kWrongHash ? 1u : 0u));
  response.mutable_timings()->set_device_us(static_cast<uint32_t>(end_us - start_us));
  if (options_.rank != 0) {
    response.clear_ids();
    response.clear_slots();
    response.clear_logprobs();
  }
  owner_.AddBusy(start_us, end_us);
  {
    absl::MutexLock lock(&mutex_);
    busy_ = false;
  }
  Finish(call.context, call.reactor, status);
}

bool MockShard::Impl::Process::Spend(int64_t duration_us) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(this, &Process::Interrupted),
                                  absl::Microseconds(duration_us));
}

// -- Life ----------------------------------------------------------------------------------------

void MockShard::Impl::Process::Stop() {
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

void MockShard::Impl::DieSoon() {
  absl::MutexLock lock(&life_mutex_);
  reaper_ = Thread("mock-reaper", [this] {
    std::shared_ptr<Process> process;
    std::function<void()> on_death;
    {
      absl::MutexLock lock(&mutex_);
      process = process_;
      on_death = on_death_;
    }
    process->Stop();
    if (on_death) on_death();
  });
}

void MockShard::Impl::Kill() {
  absl::MutexLock lock(&life_mutex_);
  reaper_.Join();
  std::shared_ptr<Process> process;
  {
    absl::MutexLock lock_state(&mutex_);
    process.swap(process_);
  }
  if (process == nullptr) return;
  process->Stop();
  process->WithModel([this](const MockModel& model) {
    absl::MutexLock lock_state(&mutex_);
    AddModel(model);
  });
}

void MockShard::Impl::Start() {
  absl::MutexLock lock(&life_mutex_);
  auto process = std::make_shared<Process>(this);
  absl::MutexLock lock_state(&mutex_);
  WEFT_CHECK(process_ == nullptr);
  process_ = std::move(process);
}

MockShard::MockShard(const MockShardOptions& options) : impl_(std::make_unique<Impl>(options)) {
  impl_->Start();
}

MockShard::~MockShard() { impl_->Kill(); }

void MockShard::SetFaults(std::function<MockFault(const MockMoment&)> faults) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->faults_ = std::move(faults);
}

void MockShard::SetOnDeath(std::function<void()> on_death) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->on_death_ = std::move(on_death);
}

void MockShard::Kill() { impl_->Kill(); }
void MockShard::Start() { impl_->Start(); }
std::string MockShard::address() const { return absl::StrCat("unix:", impl_->options_.socket); }

uint64_t MockShard::pid() const {
  absl::MutexLock lock(&impl_->mutex_);
  return impl_->process_ == nullptr ? 0 : impl_->process_->pid();
}

Epoch MockShard::epoch() const {
  std::shared_ptr<Impl::Process> process;
  {
    absl::MutexLock lock(&impl_->mutex_);
    process = impl_->process_;
  }
  return process == nullptr ? 0 : process->epoch();
}

MockShardStats MockShard::stats() const {
  std::shared_ptr<Impl::Process> process;
  MockShardStats stats;
  {
    absl::MutexLock lock(&impl_->mutex_);
    process = impl_->process_;
    stats = impl_->totals_;
  }
  if (process == nullptr) return stats;
  process->WithModel([&stats](const MockModel& model) {
    stats.chunks += model.chunks();
    stats.mixed_steps += model.mixed_steps();
    stats.prefix_hits += model.prefix_hits();
    stats.held_slots = model.held_slots();
    stats.violations.insert(stats.violations.end(), model.violations().begin(),
                            model.violations().end());
  });
  return stats;
}

void MockShard::ResetBusy() {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->totals_.busy_us = 0;
  impl_->totals_.span_us = 0;
  impl_->first_start_us_ = 0;
}

}  // namespace weft::testing

// One life of a mock shard: its gRPC server, its device thread and what it knows of the group. What
// outlives it, faults and totals, belongs to the owner, MockShard. Its calls come on gRPC threads.

#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/thread.h"
#include "tests/support/mock_model.h"
#include "tests/support/mock_shard.h"
#include "weft/shard/v1/shard.grpc.pb.h"

namespace weft::testing {

// Outlives every life. Thread-safe.
class MockProcessOwner {
 public:
  virtual ~MockProcessOwner() = default;
  // Which fault happens now; fills in `moment.before`.
  virtual MockFault Ask(MockMoment moment) = 0;
  // Kills the process from one of its own threads.
  virtual void DieSoon() = 0;
  // A step: for how long none was there before it came, when it ran.
  virtual void AddBusy(int64_t starved_us, int64_t start_us, int64_t end_us) = 0;
  virtual void AddArrival(size_t in_flight, size_t bytes) = 0;
  virtual void AddViolation(const std::string& what) = 0;
  virtual void AddEpoch() = 0;
};

class MockProcess final : public weft::shard::v1::ShardService::CallbackService {
 public:
  explicit MockProcess(const MockShardOptions& options, MockProcessOwner* owner);
  ~MockProcess() override { Stop(); }

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

  grpc::ServerUnaryReactor* Info(grpc::CallbackServerContext* context,
                                 const weft::shard::v1::InfoRequest*,
                                 weft::shard::v1::InfoResponse* response) override;
  grpc::ServerUnaryReactor* Hold(grpc::CallbackServerContext*,
                                 const weft::shard::v1::HoldRequest* request,
                                 weft::shard::v1::HoldResponse*) override;
  grpc::ServerUnaryReactor* Rendezvous(grpc::CallbackServerContext* context,
                                       const weft::shard::v1::RendezvousRequest* request,
                                       weft::shard::v1::RendezvousResponse* response) override;
  grpc::ServerUnaryReactor* JoinGroup(grpc::CallbackServerContext* context,
                                      const weft::shard::v1::JoinGroupRequest* request,
                                      weft::shard::v1::JoinGroupResponse*) override;
  grpc::ServerUnaryReactor* LeaveGroup(grpc::CallbackServerContext* context,
                                       const weft::shard::v1::LeaveGroupRequest* request,
                                       weft::shard::v1::LeaveGroupResponse*) override;
  grpc::ServerUnaryReactor* Warmup(grpc::CallbackServerContext* context,
                                   const weft::shard::v1::WarmupRequest* request,
                                   weft::shard::v1::WarmupResponse* response) override;
  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const weft::shard::v1::PrefillRequest* request,
                                    weft::shard::v1::StepResponse* response) override {
    StepCall call{context, context->DefaultReactor(), response, "Prefill"};
    call.prefill = request;
    return Enqueue(call, request->header(), request->ByteSizeLong());
  }
  grpc::ServerUnaryReactor* Decode(grpc::CallbackServerContext* context,
                                   const weft::shard::v1::DecodeRequest* request,
                                   weft::shard::v1::StepResponse* response) override {
    StepCall call{context, context->DefaultReactor(), response, "Decode"};
    call.decode = request;
    return Enqueue(call, request->header(), request->ByteSizeLong());
  }
  grpc::ServerUnaryReactor* FilterBatch(grpc::CallbackServerContext* context,
                                        const weft::shard::v1::FilterBatchRequest* request,
                                        weft::shard::v1::StepResponse* response) override {
    StepCall call{context, context->DefaultReactor(), response, "FilterBatch"};
    call.filter = request;
    return Enqueue(call, request->header(), request->ByteSizeLong());
  }
  grpc::ServerUnaryReactor* MaskRows(grpc::CallbackServerContext* context,
                                     const weft::shard::v1::MaskRowsRequest* request,
                                     weft::shard::v1::MaskRowsResponse*) override;

 private:
  class HoldReactor;
  struct StepCall {
    grpc::CallbackServerContext* context = nullptr;
    grpc::ServerUnaryReactor* reactor = nullptr;
    weft::shard::v1::StepResponse* response = nullptr;
    const char* name = "";
    int64_t arrived_us = 0;
    const weft::shard::v1::PrefillRequest* prefill = nullptr;
    const weft::shard::v1::DecodeRequest* decode = nullptr;
    const weft::shard::v1::FilterBatchRequest* filter = nullptr;
  };
  struct Parked {
    grpc::CallbackServerContext* context;
    grpc::ServerUnaryReactor* reactor;
  };

  // Answers unless the shard hangs or is dead.
  void Finish(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
              const grpc::Status& status) {
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
              grpc::ServerUnaryReactor* reactor);
  grpc::ServerUnaryReactor* Enqueue(const StepCall& call, const weft::shard::v1::StepHeader& header,
                                    size_t bytes);
  void EndHold(grpc::ServerUnaryReactor* reactor);
  void DeviceLoop();
  void RunStep(StepNumber step, Epoch epoch, const StepCall& call);
  bool MasksReady(const StepCall& call) const ABSL_LOCKS_EXCLUDED(model_mutex_);
  // Waits for the masks of the step's rows.
  grpc::Status AwaitMasks(StepNumber step, const StepCall& call);
  // Lets `duration_us` pass; false when the step was aborted.
  bool Spend(int64_t duration_us);
  grpc::Status CheckEpoch(Epoch epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DeviceReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return dead_ || (!hung_ && !steps_.empty() && steps_.begin()->first == next_step_);
  }
  bool Interrupted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return dead_ || abort_; }
  bool DeviceIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_ || dead_; }

  MockProcessOwner& owner_;
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
  // The claim that is granted, 0 and null without one.
  uint64_t holder_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t launcher_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ServerUnaryReactor* hold_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Epoch epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  StepNumber next_step_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<StepNumber, StepCall> steps_ ABSL_GUARDED_BY(mutex_);
  // MaskRows calls so far.
  uint64_t mask_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Parked> parked_ ABSL_GUARDED_BY(mutex_);
  mutable absl::Mutex model_mutex_;
  MockModel model_ ABSL_GUARDED_BY(model_mutex_);
  // End of the last step; the device thread's.
  int64_t last_end_us_ = 0;
  Epoch failed_epoch_ = 0;  // the last epoch in which a step erred
  Thread device_;
};

}  // namespace weft::testing

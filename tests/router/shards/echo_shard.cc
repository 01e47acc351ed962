#include "tests/router/shards/echo_shard.h"

#include <grpcpp/generic/async_generic_service.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "tests/support/grpc_threads.h"

namespace weft::router {
namespace {

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  WEFT_CHECK(buffer.Dump(&slices).ok());
  std::string out;
  for (const grpc::Slice& slice : slices) {
    out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

// Calls stay until the server is gone, and each callback ends with the lock of what keeps them:
// ThreadSanitizer does not see how gRPC orders them.
struct EchoCalls {
  absl::Mutex mutex;
  std::vector<std::unique_ptr<grpc::ServerGenericBidiReactor>> all ABSL_GUARDED_BY(mutex);
};

class EchoCall : public grpc::ServerGenericBidiReactor {
 public:
  EchoCall(std::string method, EchoCalls* calls, std::atomic<int>* cancelled)
      : method_(std::move(method)), calls_(calls), cancelled_(cancelled) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End(grpc::Status::CANCELLED);
    } else if (absl::EndsWith(method_, "/Prefill")) {
      End(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, kEchoError));
    } else if (!Endless()) {
      Answer();
    }
    const absl::MutexLock lock(&calls_->mutex);
  }
  void OnCancel() override {
    cancelled_->fetch_add(1);
    if (Endless()) End(grpc::Status::CANCELLED);
    const absl::MutexLock lock(&calls_->mutex);
  }
  void OnDone() override { const absl::MutexLock lock(&calls_->mutex); }

 private:
  // Goes on until it is cancelled.
  bool Endless() const {
    return absl::EndsWith(method_, "/Decode") || absl::EndsWith(method_, "/Hold");
  }
  void Answer() {
    response_ = request_;
    size_t bytes = 0;
    if (absl::EndsWith(method_, "/Warmup") && absl::SimpleAtoi(Flatten(request_), &bytes)) {
      grpc::Slice slice(std::string(bytes, 'w'));
      response_ = grpc::ByteBuffer(&slice, 1);
    }
    if (!ended_.exchange(true)) {
      StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    }
  }
  // A cancelled call may hear of it twice: here and where its request fails.
  void End(const grpc::Status& status) {
    if (!ended_.exchange(true)) Finish(status);
  }

  const std::string method_;
  EchoCalls* const calls_;
  std::atomic<int>* const cancelled_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::atomic<bool> ended_{false};
};

}  // namespace

class EchoShard::Service : public grpc::CallbackGenericService {
 public:
  explicit Service(std::atomic<int>* cancelled) : cancelled_(cancelled) {}
  ~Service() override {
    const absl::MutexLock lock(&calls_.mutex);
    calls_.all.clear();
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    auto call = std::make_unique<EchoCall>(context->method(), &calls_, cancelled_);
    const absl::MutexLock lock(&calls_.mutex);
    return calls_.all.emplace_back(std::move(call)).get();
  }

 private:
  std::atomic<int>* const cancelled_;
  EchoCalls calls_;
};

EchoShard::EchoShard(const std::string& address,
                     std::shared_ptr<grpc::ServerCredentials> credentials)
    : service_(std::make_unique<Service>(&cancelled_)) {
  testing::KeepGrpcThreads();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, std::move(credentials), &port);
  builder.RegisterCallbackGenericService(service_.get());
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  server_ = builder.BuildAndStart();
  WEFT_CHECK(server_ != nullptr && port != 0);
  address_ = absl::StartsWith(address, "unix:")
                 ? address
                 : absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

EchoShard::~EchoShard() { server_->Shutdown(std::chrono::system_clock::now()); }

}  // namespace weft::router

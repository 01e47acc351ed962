#include "router/doors/grpc/service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/thread.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/resource_quota.h"
#include "router/doors/grpc/call_watch.h"
#include "router/doors/grpc/calls.h"
#include "router/doors/grpc/credentials.h"
#include "router/doors/grpc/gate.h"
#include "router/doors/grpc/health.h"
#include "router/doors/grpc/methods.h"
#include "router/doors/grpc/open_inference.h"
#include "router/doors/grpc/reflection.h"

namespace weft::router {
namespace {

constexpr int64_t kDayMs = 24 * 3600 * 1000;
constexpr int64_t kHandshakeTimeoutMs = 10'000;
constexpr int64_t kReadBytesMax = 2 << 10;
// Calls that have not come to their handler yet.
constexpr int64_t kNewCallsMax = 256;
// Calls that were answered without work, until clients take the answer.
constexpr size_t kUntakenAnswersMax = 1024;
// Calls that were neither let in to be worked on nor have ended well, on all connections together,
// at some 27 KB each; and on one connection, whatever others do.
constexpr int64_t kDebtMax = 1536;
constexpr int64_t kConnectionDebtMin = 8;
// gRPC's own services are for everybody, without a key: their calls have bounds of their own, so
// that they never take the room of others. One message is some names.
constexpr size_t kSideMessageBytesMax = 4 << 10;
constexpr size_t kWatchesMax = 1024;
constexpr size_t kWatchesPerConnectionMax = 16;
constexpr size_t kHealthAwaitedMax = 256;
constexpr size_t kReflectionsMax = 64;
constexpr size_t kReflectionsPerConnectionMax = 8;

ConnectionGateOptions GateOptions(const GrpcServerOptions& options, int64_t slow_reader_us) {
  ConnectionGateOptions gate;
  gate.connections_max = options.connections_max;
  gate.starting_max = std::min(options.starting_connections_max, options.connections_max);
  gate.unfinished_connection_bytes_max =
      std::max(options.unfinished_bytes_max / 2, 2 * options.message_bytes_max);
  gate.unfinished_bytes_max =
      std::max(options.unfinished_bytes_max, 2 * gate.unfinished_connection_bytes_max);
  gate.first_call_timeout_us = options.first_call_timeout_us;
  gate.slow_reader_timeout_us = slow_reader_us;
  gate.plain_text = options.credentials == nullptr;
  return gate;
}

CallAllowance AllowanceOf(const GrpcServerOptions& options) {
  CallAllowance allowance;
  // A quarter more may be on their way out: ended by the client and not by us.
  allowance.calls_burst = int64_t{options.streams_per_connection_max} * 5 / 4;
  allowance.calls_per_s = options.calls_per_connection_s;
  return allowance;
}

GrpcCallLimits GenerationLimits(const GrpcServerOptions& options) {
  GrpcCallLimits limits;
  limits.working_max = static_cast<size_t>(options.calls_max);
  limits.awaited.calls_max = options.awaited_calls_max;
  limits.awaited.connection_calls_max = options.awaited_calls_per_connection_max;
  limits.awaited.timeout_us = options.message_timeout_us;
  return limits;
}

GrpcCallLimits HealthLimits(const GrpcServerOptions& options) {
  GrpcCallLimits limits;
  limits.working_max = kWatchesMax;
  limits.connection_working_max = kWatchesPerConnectionMax;
  limits.awaited.calls_max = kHealthAwaitedMax;
  limits.awaited.timeout_us = options.message_timeout_us;
  return limits;
}

GrpcCallLimits ReflectionLimits(const GrpcServerOptions& options) {
  GrpcCallLimits limits;
  limits.working_max = kReflectionsMax;
  limits.connection_working_max = kReflectionsPerConnectionMax;
  limits.awaited.calls_max = kReflectionsMax;
  limits.awaited.connection_calls_max = kReflectionsPerConnectionMax;
  limits.awaited.timeout_us = options.message_timeout_us;
  return limits;
}

CallBounds BoundsOf(const GrpcServerOptions& options) {
  CallBounds bounds;
  bounds.early_max =
      static_cast<int64_t>(options.awaited_calls_max + kHealthAwaitedMax + kReflectionsMax) +
      kNewCallsMax;
  bounds.untaken_max = kUntakenAnswersMax;
  bounds.debts.debt_max = kDebtMax;
  bounds.debts.connection_debt_min = kConnectionDebtMin;
  return bounds;
}

void SetConnectionArguments(const GrpcServerOptions& options, grpc::ServerBuilder* builder) {
  const auto set = [builder](const char* name, int64_t value) {
    builder->AddChannelArgument(
        name, static_cast<int>(std::min<int64_t>(value, std::numeric_limits<int>::max())));
  };
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.streams_per_connection_max);
  set(GRPC_ARG_MAX_METADATA_SIZE, kHeaderBytesMax);
  // From accept to the client's SETTINGS, the TLS handshake included.
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // Clients may ping every 10 s; the library's default of 5 minutes answers them with GOAWAY.
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 9'000);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_us / 1000);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout_us / 1000);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The library would end a connection for its pings by one error and one GOAWAY for each ping that
  // it has read, at tens of microseconds each, on the thread that hands over newcomers. Unpunished
  // they cost a microsecond, it stops reading while 10,000 answers wait, and the gate ends those
  // whose bytes become no calls.
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // A megabyte of gzip may expand to a gigabyte before its size is looked at: compressed messages
  // are refused as UNIMPLEMENTED, as HTTP refuses Content-Encoding, and none is expanded meanwhile.
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // What one read takes in is worked on before the watch sees its calls.
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadBytesMax);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytesMax);
  if (options.connection_idle_s > 0) {
    set(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.connection_idle_s * 1000);
  }
  if (options.connection_age_s > 0) {
    set(GRPC_ARG_MAX_CONNECTION_AGE_MS, options.connection_age_s * 1000);
    set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kDayMs);
  }
}

class CallbackGrpcServer : public GrpcServer {
 public:
  CallbackGrpcServer(const GrpcServerOptions& options, DoorContext* doors,
                     std::unique_ptr<ConnectionGate> gate)
      : options_(options),
        doors_(doors),
        gate_(std::move(gate)),
        watch_(gate_.get(), AllowanceOf(options), BoundsOf(options)),
        calls_(GenerationLimits(options)),
        health_calls_(HealthLimits(options)),
        reflection_calls_(ReflectionLimits(options)),
        methods_({doors, &watch_, &calls_, options.message_bytes_max}),
        health_({doors, &watch_, &health_calls_, kSideMessageBytesMax, /*open=*/true}),
        open_inference_({doors, &watch_, &health_calls_, kSideMessageBytesMax, /*open=*/true},
                        {doors, &watch_, &calls_, kSideMessageBytesMax}),
        reflection_({doors, &watch_, &reflection_calls_, kSideMessageBytesMax, /*open=*/true}),
        unknown_(doors, &watch_) {}

  ~CallbackGrpcServer() override { Stop(absl::ZeroDuration()); }

  absl::Status Build() {
    grpc::ServerBuilder builder;
    builder.SetContextAllocator(watch_.MakeAllocator());
    builder.experimental().SetInterceptorCreators(watch_.MakeInterceptors());
    // An acceptor for each way: the credentials know by which a call came.
    for (size_t way = 0; way <= ConnectionGate::kWays; ++way) {
      acceptors_.push_back(builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          MakeServerCredentials(options_.credentials, [this, way](const GrpcCallHead& head) {
            return CheckHead(head, way);
          })));
    }
    builder.RegisterService(&methods_);
    builder.RegisterService(&health_);
    builder.RegisterService(&open_inference_);
    builder.RegisterService(&reflection_);
    builder.RegisterCallbackGenericService(&unknown_);
    // Up to twice the limit a message is read and refused by us, by name; above that the library
    // refuses it unread.
    builder.SetMaxReceiveMessageSize(static_cast<int>(
        std::min<size_t>(2 * options_.message_bytes_max, std::numeric_limits<int>::max())));
    grpc::ResourceQuota quota("weft-public");
    quota.Resize(options_.memory_bytes_max);
    builder.SetResourceQuota(quota);
    SetConnectionArguments(options_, &builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC did not start its server");
    UpdateHealth();
    WEFT_RETURN_IF_ERROR(gate_->Start([this](int listener_fd, int fd, size_t way) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.listener_fd = listener_fd;
      connection.fd = fd;
      acceptors_[way]->HandleNewConnection(&connection);
    }));
    watcher_ = Thread("grpc-watch", [this] { Watch(); });
    return absl::OkStatus();
  }

  int port() const override { return gate_->port(); }

  void StartDrain() override {
    absl::MutexLock lock(&health_mutex_);
    draining_ = true;
    health_.SetServing(false);
  }

  void Stop(absl::Duration timeout) override {
    if (server_ == nullptr) return;
    if (stopped_.exchange(true)) return;
    stop_.Notify();
    watcher_.Join();
    gate_->Stop();
    // They would go on for as long as their clients like.
    const absl::Status stopping = absl::UnavailableError("the server stops");
    health_calls_.CloseAll(stopping);
    reflection_calls_.CloseAll(stopping);
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
    server_->Wait();
  }

 private:
  absl::Status CheckHead(const GrpcCallHead& head, size_t way) {
    if (!watch_.Arrived({head.connection, way, head.timeout_us}, MonotonicClock().NowUs())) {
      return absl::UnavailableError("too many calls");
    }
    // The library counts only when the client has acknowledged the bound in our SETTINGS.
    if (head.header_bytes <= kHeaderBytesMax) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "the header has ", head.header_bytes, " bytes; at most ", kHeaderBytesMax, " are taken"));
  }

  void Watch() {
    while (!stop_.WaitForNotificationWithTimeout(absl::Microseconds(options_.watch_interval_us))) {
      UpdateHealth();
      for (GrpcCalls* calls : {&calls_, &health_calls_, &reflection_calls_}) {
        calls->Look(MonotonicClock().NowUs(), doors_->options().slow_reader_timeout_us);
      }
    }
  }

  // The entrance has no news to give: its state is asked for.
  void UpdateHealth() {
    const bool ready = doors_->Status().state == ServerState::kReady;
    absl::MutexLock lock(&health_mutex_);
    health_.SetServing(ready && !draining_);
  }

  const GrpcServerOptions options_;
  DoorContext* const doors_;
  const std::unique_ptr<ConnectionGate> gate_;
  GrpcCallWatch watch_;
  GrpcCalls calls_;
  GrpcCalls health_calls_;
  GrpcCalls reflection_calls_;
  TextGenerationMethods methods_;
  HealthMethods health_;
  OpenInferenceMethods open_inference_;
  ReflectionMethods reflection_;
  UnknownMethods unknown_;
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> acceptors_;
  std::unique_ptr<grpc::Server> server_;
  // Held while health is set, so that a drain has the last word.
  absl::Mutex health_mutex_;
  bool draining_ ABSL_GUARDED_BY(health_mutex_) = false;
  absl::Notification stop_;
  std::atomic<bool> stopped_{false};
  Thread watcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options,
                                                              DoorContext* doors) {
  // The port is bound by us, before gRPC starts anything: an error is one line and names the way
  // out.
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<ConnectionGate> gate,
      ConnectionGate::Listen(options.address,
                             GateOptions(options, doors->options().slow_reader_timeout_us)));
  auto server = std::make_unique<CallbackGrpcServer>(options, doors, std::move(gate));
  WEFT_RETURN_IF_ERROR(server->Build());
  return server;
}

}  // namespace weft::router

#include "router/doors/grpc/service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/thread.h"
#include "common/version.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "router/doors/access_log.h"
#include "router/doors/grpc/call_watch.h"
#include "router/doors/grpc/caller.h"
#include "router/doors/grpc/credentials.h"
#include "router/doors/grpc/errors.h"
#include "router/doors/grpc/gate.h"
#include "router/doors/grpc/generate.h"
#include "router/doors/grpc/request.h"
#include "router/errors.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::ServerWriteReactor;
using weft::v1::TextGeneration;

constexpr absl::string_view kGetModel = "GetModel";
constexpr char kServiceName[] = "weft.v1.TextGeneration";
constexpr int64_t kDayMs = 24 * 3600 * 1000;
constexpr int64_t kHandshakeTimeoutMs = 10'000;
constexpr int64_t kReadBytesMax = 4 << 10;
constexpr int kReflectionThreadsMax = 16;

// Messages come as bytes, so that one which does not parse gets INVALID_ARGUMENT from us and not a
// bare UNIMPLEMENTED from the library.
using RawService = TextGeneration::WithRawCallbackMethod_Generate<
    TextGeneration::WithRawCallbackMethod_Tokenize<TextGeneration::WithRawCallbackMethod_Detokenize<
        TextGeneration::WithRawCallbackMethod_Cancel<
            TextGeneration::WithRawCallbackMethod_GetModel<TextGeneration::Service>>>>>;

template <typename Message>
absl::Status Decode(const ByteBuffer& bytes, size_t bytes_max, Message* message) {
  WEFT_RETURN_IF_ERROR(CheckMessageBytes(bytes.Length(), bytes_max));
  ByteBuffer copy(bytes);  // by reference
  if (grpc::SerializationTraits<Message>::Deserialize(&copy, message).ok()) {
    return absl::OkStatus();
  }
  return FieldError("request", "is malformed, or text in it is not UTF-8");
}

template <typename Message>
void Encode(const Message& message, ByteBuffer* bytes) {
  bool own_buffer = false;
  const grpc::Status status =
      grpc::SerializationTraits<Message>::Serialize(message, bytes, &own_buffer);
  WEFT_CHECK_MSG(status.ok(), status.error_message());
}

weft::v1::DataType WireDataType(absl::string_view name) {
  if (name == "float32") return weft::v1::DATA_TYPE_FLOAT32;
  if (name == "bfloat16") return weft::v1::DATA_TYPE_BFLOAT16;
  if (name == "float16") return weft::v1::DATA_TYPE_FLOAT16;
  return weft::v1::DATA_TYPE_UNSPECIFIED;
}

// A stream that ends with an error before anything was done for it. Deletes itself.
class RefusedStream : public ServerWriteReactor<ByteBuffer> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { const std::unique_ptr<RefusedStream> self(this); }
};

// What is known of a call.
struct Call {
  Call(CallbackServerContext* of, absl::string_view name, const ByteBuffer& bytes)
      : context(of), method(name), has_message(bytes.Valid()), start_us(MonotonicClock().NowUs()) {}

  CallbackServerContext* context;
  absl::string_view method;
  bool has_message;
  int64_t start_us;
  // Of one that was let in.
  std::string tenant;
};

// A call with one answer.
struct UnaryCall : Call {
  // Once a call: it makes the call's reactor.
  UnaryCall(CallbackServerContext* of, absl::string_view name, const ByteBuffer& bytes)
      : Call(of, name, bytes), reactor(of->DefaultReactor()) {}

  ServerUnaryReactor* reactor;
};

class TextGenerationService : public RawService {
 public:
  TextGenerationService(DoorContext* doors, GrpcCallWatch* watch, size_t message_bytes_max)
      : doors_(doors), watch_(watch), message_bytes_max_(message_bytes_max) {}

  GrpcCalls& calls() { return calls_; }

  ServerWriteReactor<ByteBuffer>* Generate(CallbackServerContext* context,
                                           const ByteBuffer* request) override {
    const absl::Status wanted = watch_->Check(*context, *request);
    if (wanted.ok()) {
      // gRPC keeps the message for as long as the stream, megabytes that nobody reads again. It is
      // no constant there (ServerCallbackWriterImpl) and may be emptied.
      return GenerateReactor::Start(doors_, &calls_, context, const_cast<ByteBuffer*>(request),
                                    message_bytes_max_);
    }
    const grpc::Status answer = ToGrpcStatus(wanted);
    Record(Call(context, "Generate", *request), answer.error_code());
    return std::make_unique<RefusedStream>(answer).release();
  }

  ServerUnaryReactor* Tokenize(CallbackServerContext* context, const ByteBuffer* bytes,
                               ByteBuffer* answer) override {
    UnaryCall call(context, "Tokenize", *bytes);
    absl::StatusOr<Admission::Permit> permit =
        doors_->EnterText(CredentialsOf(*context), bytes->Length());
    if (!permit.ok()) return Finish(call, permit.status());
    call.tenant = permit->tenant()->name;
    weft::v1::TokenizeRequest request;
    if (absl::Status status = Read(context, *bytes, &request); !status.ok()) {
      return Finish(call, status);
    }
    auto prompt = ReadTokenize(request);
    if (!prompt.ok()) return Finish(call, prompt.status());
    const bool add = !request.has_add_special_tokens() || request.add_special_tokens();
    doors_->entrance().Tokenize(*std::move(prompt), add, *std::move(permit), /*call=*/nullptr,
                                [this, call, answer](absl::StatusOr<TokenizeResult> result) {
                                  if (result.ok()) {
                                    weft::v1::TokenizeResponse response;
                                    response.mutable_ids()->Add(result->ids.begin(),
                                                                result->ids.end());
                                    for (std::string& token : result->tokens)
                                      response.add_tokens(std::move(token));
                                    Encode(response, answer);
                                  }
                                  Finish(call, result.status());
                                });
    return call.reactor;
  }

  ServerUnaryReactor* Detokenize(CallbackServerContext* context, const ByteBuffer* bytes,
                                 ByteBuffer* answer) override {
    UnaryCall call(context, "Detokenize", *bytes);
    absl::StatusOr<Admission::Permit> permit =
        doors_->EnterText(CredentialsOf(*context), bytes->Length());
    if (!permit.ok()) return Finish(call, permit.status());
    call.tenant = permit->tenant()->name;
    weft::v1::DetokenizeRequest request;
    if (absl::Status status = Read(context, *bytes, &request); !status.ok()) {
      return Finish(call, status);
    }
    absl::StatusOr<std::vector<TokenId>> ids = ReadDetokenize(request);
    if (!ids.ok()) return Finish(call, ids.status());
    const bool skip = !request.has_skip_special_tokens() || request.skip_special_tokens();
    doors_->entrance().Detokenize(*std::move(ids), skip, *std::move(permit), /*call=*/nullptr,
                                  [this, call, answer](absl::StatusOr<std::string> text) {
                                    if (text.ok()) {
                                      weft::v1::DetokenizeResponse response;
                                      response.set_text(*std::move(text));
                                      Encode(response, answer);
                                    }
                                    Finish(call, text.status());
                                  });
    return call.reactor;
  }

  ServerUnaryReactor* Cancel(CallbackServerContext* context, const ByteBuffer* bytes,
                             ByteBuffer* answer) override {
    UnaryCall call(context, "Cancel", *bytes);
    weft::v1::CancelRequest request;
    absl::Status status = Read(context, *bytes, &request);
    if (status.ok() && !IsRequestId(request.request_id())) {
      status = FieldError("request_id", "must have 1 to 128 characters of [A-Za-z0-9._-]");
    }
    const absl::StatusOr<TenantRef> tenant = doors_->Authenticate(CredentialsOf(*context));
    if (tenant.ok()) call.tenant = (*tenant)->name;
    if (status.ok()) status = tenant.status();
    if (status.ok()) {
      weft::v1::CancelResponse response;
      response.set_found(doors_->entrance().Cancel(**tenant, request.request_id()));
      Encode(response, answer);
    }
    return Finish(call, status);
  }

  ServerUnaryReactor* GetModel(CallbackServerContext* context, const ByteBuffer* bytes,
                               ByteBuffer* answer) override {
    UnaryCall call(context, kGetModel, *bytes);
    const absl::StatusOr<TenantRef> tenant = doors_->Authenticate(CredentialsOf(*context));
    if (!tenant.ok()) return Finish(call, tenant.status());
    call.tenant = (*tenant)->name;
    weft::v1::GetModelRequest request;
    if (absl::Status status = Read(context, *bytes, &request); !status.ok()) {
      return Finish(call, status);
    }
    const ModelFacts model = doors_->entrance().Model();
    weft::v1::GetModelResponse response;
    response.set_model(model.model_name);
    response.set_family(model.shape.family);
    response.set_parameters(model.shape.parameters);
    response.set_context_tokens(model.shape.context_tokens);
    response.set_vocab_size(model.shape.vocab_size);
    response.set_dtype(WireDataType(model.shape.dtype));
    response.set_shards(model.shards);
    response.mutable_build()->set_version(Version());
    response.mutable_build()->set_revision(Revision());
    response.set_request_tokens_max(model.shape.request_tokens_max);
    Encode(response, answer);
    return Finish(call, absl::OkStatus());
  }

 private:
  template <typename Message>
  absl::Status Read(CallbackServerContext* context, const ByteBuffer& bytes, Message* message) {
    WEFT_RETURN_IF_ERROR(watch_->Check(*context, bytes));
    return Decode(bytes, message_bytes_max_, message);
  }

  ServerUnaryReactor* Finish(const UnaryCall& call, const absl::Status& status) {
    const grpc::Status answer = ToGrpcStatus(status);
    Record(call, answer.error_code());
    call.reactor->Finish(answer);
    return call.reactor;
  }

  // The end of a call, for metrics and log. While its context is there: before it is finished.
  void Record(const Call& call, grpc::StatusCode code) {
    const int64_t total_us = MonotonicClock().NowUs() - call.start_us;
    doors_->probe().GrpcHandled(call.method, GrpcCodeName(code), total_us);
    // Taken back before anything was done for it. Floods of calls that are reset at once are such:
    // a line for each would be work for the threads that have to end them.
    if (!call.has_message || code == grpc::StatusCode::CANCELLED) return;
    AccessRecord record;
    record.traceparent = MetadataOf(*call.context, "traceparent");
    if (!IsTraceparent(record.traceparent)) record.traceparent.clear();
    record.tenant = call.tenant;
    record.client = PeerOf(*call.context);
    record.door = "grpc";
    record.route = call.method;
    record.status = std::string(GrpcCodeName(code));
    record.total_us = total_us;
    // What needs no work is asked for every few seconds, as on HTTP.
    LogAccess(record, /*quiet=*/call.method == kGetModel && code == grpc::StatusCode::OK);
  }

  DoorContext* const doors_;
  GrpcCallWatch* const watch_;
  const size_t message_bytes_max_;
  GrpcCalls calls_;
};

ConnectionGateOptions GateOptions(const GrpcServerOptions& options) {
  ConnectionGateOptions gate;
  gate.connections_max = options.connections_max;
  gate.starting_max = std::min(options.starting_connections_max, options.connections_max);
  gate.unfinished_connection_bytes_max =
      std::max(options.unfinished_bytes_max / 2, 2 * options.message_bytes_max);
  gate.unfinished_bytes_max =
      std::max(options.unfinished_bytes_max, 2 * gate.unfinished_connection_bytes_max);
  gate.first_call_timeout_us = options.first_call_timeout_us;
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
        watch_(gate_.get(), AllowanceOf(options), options.calls_max),
        service_(doors, &watch_, options.message_bytes_max) {}

  ~CallbackGrpcServer() override { Stop(absl::ZeroDuration()); }

  absl::Status Build() {
    grpc::EnableDefaultHealthCheckService(true);
    // Named here so that it is linked in: reflection describes what this process knows.
    grpc::health::v1::HealthCheckResponse::descriptor();
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.SetContextAllocator(watch_.MakeAllocator());
    builder.experimental().SetInterceptorCreators(watch_.MakeInterceptors());
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        MakeServerCredentials(options_.credentials, [this](const void* connection) {
          return watch_.Arrived(connection, MonotonicClock().NowUs());
        }));
    builder.RegisterService(&service_);
    // Without threads of their own, unlike what the library has for methods that do not exist.
    builder.RegisterCallbackGenericService(&unknown_);
    // Up to twice the limit a message is read and refused by us, by name; above that the library
    // refuses it unread.
    builder.SetMaxReceiveMessageSize(static_cast<int>(
        std::min<size_t>(2 * options_.message_bytes_max, std::numeric_limits<int>::max())));
    grpc::ResourceQuota quota("weft-public");
    quota.Resize(options_.memory_bytes_max);
    // Each reflection stream holds a thread; with none left a call is RESOURCE_EXHAUSTED.
    quota.SetMaxThreads(kReflectionThreadsMax);
    builder.SetResourceQuota(quota);
    SetConnectionArguments(options_, &builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC did not start its server");
    UpdateHealth();
    WEFT_RETURN_IF_ERROR(gate_->Start([this](int listener_fd, int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.listener_fd = listener_fd;
      connection.fd = fd;
      acceptor_->HandleNewConnection(&connection);
    }));
    watcher_ = Thread("grpc-watch", [this] { Watch(); });
    return absl::OkStatus();
  }

  int port() const override { return gate_->port(); }

  void StartDrain() override {
    absl::MutexLock lock(&health_mutex_);
    if (server_ != nullptr) SetHealth(false);
  }

  void Stop(absl::Duration timeout) override {
    if (server_ == nullptr) return;
    if (stopped_.exchange(true)) return;
    stop_.Notify();
    watcher_.Join();
    gate_->Stop();
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
    server_->Wait();
  }

 private:
  void Watch() {
    while (!stop_.WaitForNotificationWithTimeout(absl::Microseconds(options_.watch_interval_us))) {
      UpdateHealth();
      service_.calls().CheckSlow(MonotonicClock().NowUs(),
                                 doors_->options().slow_reader_timeout_us);
    }
  }

  // The entrance has no news to give: its state is asked for.
  void UpdateHealth() {
    const ServerState state = doors_->Status().state;
    absl::MutexLock lock(&health_mutex_);
    SetHealth(state == ServerState::kReady);
  }

  void SetHealth(bool serving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_mutex_) {
    if (health_ == static_cast<int>(serving)) return;
    health_ = static_cast<int>(serving);
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus(serving);  // "" and all names known to it
    health->SetServingStatus(kServiceName, serving);
  }

  const GrpcServerOptions options_;
  DoorContext* const doors_;
  const std::unique_ptr<ConnectionGate> gate_;
  GrpcCallWatch watch_;
  TextGenerationService service_;
  grpc::CallbackGenericService unknown_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex health_mutex_;
  int health_ ABSL_GUARDED_BY(health_mutex_) = -1;
  absl::Notification stop_;
  std::atomic<bool> stopped_{false};
  Thread watcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options,
                                                              DoorContext* doors) {
  // The port is bound by us, before gRPC starts anything: an error is one line and names the way
  // out.
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ConnectionGate> gate,
                        ConnectionGate::Listen(options.address, GateOptions(options)));
  auto server = std::make_unique<CallbackGrpcServer>(options, doors, std::move(gate));
  WEFT_RETURN_IF_ERROR(server->Build());
  return server;
}

}  // namespace weft::router

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
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "proto/generation.grpc.pb.h"
#include "proto/grpc/health/v1/health.pb.h"
#include "router/doors/grpc/errors.h"
#include "router/doors/grpc/generate.h"
#include "router/doors/grpc/request.h"
#include "router/errors.h"

namespace weft::router {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using weft::v1::TextGeneration;

constexpr char kServiceName[] = "weft.v1.TextGeneration";
constexpr int kDayMs = 24 * 3600 * 1000;

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

weft::types::v1::DataType WireDataType(absl::string_view name) {
  if (name == "float32") return weft::types::v1::DATA_TYPE_FLOAT32;
  if (name == "bfloat16") return weft::types::v1::DATA_TYPE_BFLOAT16;
  if (name == "float16") return weft::types::v1::DATA_TYPE_FLOAT16;
  return weft::types::v1::DATA_TYPE_UNSPECIFIED;
}

class TextGenerationService : public RawService {
 public:
  TextGenerationService(Front* front, size_t message_bytes_max)
      : front_(front), message_bytes_max_(message_bytes_max) {}

  GrpcCalls& calls() { return calls_; }

  grpc::ServerWriteReactor<ByteBuffer>* Generate(CallbackServerContext* context,
                                                 const ByteBuffer* request) override {
    return GenerateReactor::Start(front_, &calls_, context, request, message_bytes_max_);
  }

  ServerUnaryReactor* Tokenize(CallbackServerContext* context, const ByteBuffer* bytes,
                               ByteBuffer* answer) override {
    auto* reactor = context->DefaultReactor();
    const int64_t start_us = MonotonicClock().NowUs();
    weft::v1::TokenizeRequest request;
    if (absl::Status status = Decode(*bytes, message_bytes_max_, &request); !status.ok()) {
      return Finish(reactor, "Tokenize", start_us, status);
    }
    auto prompt = ReadTokenize(request);
    if (!prompt.ok()) return Finish(reactor, "Tokenize", start_us, prompt.status());
    const bool add = !request.has_add_special_tokens() || request.add_special_tokens();
    front_->intake().Tokenize(
        *std::move(prompt), add,
        [this, reactor, answer, start_us](absl::StatusOr<TokenizeResult> result) {
          if (result.ok()) {
            weft::v1::TokenizeResponse response;
            response.mutable_ids()->Add(result->ids.begin(), result->ids.end());
            for (std::string& token : result->tokens) response.add_tokens(std::move(token));
            Encode(response, answer);
          }
          Finish(reactor, "Tokenize", start_us, result.status());
        });
    return reactor;
  }

  ServerUnaryReactor* Detokenize(CallbackServerContext* context, const ByteBuffer* bytes,
                                 ByteBuffer* answer) override {
    auto* reactor = context->DefaultReactor();
    const int64_t start_us = MonotonicClock().NowUs();
    weft::v1::DetokenizeRequest request;
    if (absl::Status status = Decode(*bytes, message_bytes_max_, &request); !status.ok()) {
      return Finish(reactor, "Detokenize", start_us, status);
    }
    absl::StatusOr<std::vector<TokenId>> ids = ReadDetokenize(request);
    if (!ids.ok()) return Finish(reactor, "Detokenize", start_us, ids.status());
    const bool skip = !request.has_skip_special_tokens() || request.skip_special_tokens();
    front_->intake().Detokenize(
        *std::move(ids), skip, [this, reactor, answer, start_us](absl::StatusOr<std::string> text) {
          if (text.ok()) {
            weft::v1::DetokenizeResponse response;
            response.set_text(*std::move(text));
            Encode(response, answer);
          }
          Finish(reactor, "Detokenize", start_us, text.status());
        });
    return reactor;
  }

  ServerUnaryReactor* Cancel(CallbackServerContext* context, const ByteBuffer* bytes,
                             ByteBuffer* answer) override {
    auto* reactor = context->DefaultReactor();
    const int64_t start_us = MonotonicClock().NowUs();
    weft::v1::CancelRequest request;
    absl::Status status = Decode(*bytes, message_bytes_max_, &request);
    if (status.ok() && !IsRequestId(request.request_id())) {
      status = FieldError("request_id", "must have 1 to 128 characters of [A-Za-z0-9._-]");
    }
    if (status.ok()) {
      weft::v1::CancelResponse response;
      response.set_found(front_->intake().Cancel(request.request_id()));
      Encode(response, answer);
    }
    return Finish(reactor, "Cancel", start_us, status);
  }

  ServerUnaryReactor* GetModel(CallbackServerContext* context, const ByteBuffer* bytes,
                               ByteBuffer* answer) override {
    auto* reactor = context->DefaultReactor();
    const int64_t start_us = MonotonicClock().NowUs();
    weft::v1::GetModelRequest request;
    if (absl::Status status = Decode(*bytes, message_bytes_max_, &request); !status.ok()) {
      return Finish(reactor, "GetModel", start_us, status);
    }
    const ModelFacts model = front_->intake().Model();
    weft::v1::GetModelResponse response;
    response.set_model(model.model_name);
    response.set_family(model.family);
    response.set_parameters(model.parameters);
    response.set_context_tokens(model.context_tokens);
    response.set_vocab_size(model.vocab_size);
    response.set_dtype(WireDataType(model.dtype));
    response.set_shards(model.shards);
    response.mutable_build()->set_version(Version());
    response.mutable_build()->set_revision(Revision());
    response.set_request_tokens_max(model.request_tokens_max);
    Encode(response, answer);
    return Finish(reactor, "GetModel", start_us, absl::OkStatus());
  }

 private:
  ServerUnaryReactor* Finish(ServerUnaryReactor* reactor, absl::string_view method,
                             int64_t start_us, const absl::Status& status) {
    const grpc::Status answer = ToGrpcStatus(status);
    front_->probe().GrpcHandled(method, GrpcCodeName(answer.error_code()),
                                MonotonicClock().NowUs() - start_us);
    reactor->Finish(answer);
    return reactor;
  }

  Front* const front_;
  const size_t message_bytes_max_;
  GrpcCalls calls_;
};

class CallbackGrpcServer : public GrpcServer {
 public:
  CallbackGrpcServer(const GrpcServerOptions& options, Front* front)
      : options_(options), front_(front), service_(front, options.message_bytes_max) {}

  ~CallbackGrpcServer() override { Stop(absl::ZeroDuration()); }

  absl::Status Build() {
    grpc::EnableDefaultHealthCheckService(true);
    // Named here so that it is linked in: reflection describes what this process knows.
    grpc::health::v1::HealthCheckResponse::descriptor();
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    // Up to twice the limit a message is read and refused by us, by name; above that the library
    // refuses it unread.
    builder.SetMaxReceiveMessageSize(static_cast<int>(
        std::min<size_t>(2 * options_.message_bytes_max, std::numeric_limits<int>::max())));
    grpc::ResourceQuota quota("weft-public");
    quota.Resize(options_.memory_bytes_max);
    builder.SetResourceQuota(quota);
    // A second server on the port is an error, not a silent share of the traffic.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                               options_.streams_per_connection_max);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(kHeaderBytesMax));
    // Clients may ping every 10 s; the library's default of 5 minutes answers them with GOAWAY.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 9'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    if (options_.connection_age_s > 0) {
      builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                 static_cast<int>(options_.connection_age_s * 1000));
      builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kDayMs);
    }
    server_ = builder.BuildAndStart();
    const bool unix_socket = options_.address.rfind("unix:", 0) == 0;
    if (server_ == nullptr || (port_ == 0 && !unix_socket)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot listen on ", options_.address,
                       " for gRPC; choose another --grpc-port, or 0 for a free one"));
    }
    if (unix_socket) port_ = 0;
    UpdateHealth();
    watcher_ = Thread("grpc-watch", [this] { Watch(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void StartDrain() override {
    absl::MutexLock lock(&health_mutex_);
    if (server_ != nullptr) SetHealth(false);
  }

  void Stop(absl::Duration timeout) override {
    if (server_ == nullptr) return;
    if (stopped_.exchange(true)) return;
    stop_.Notify();
    watcher_.Join();
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
    server_->Wait();
  }

 private:
  void Watch() {
    while (!stop_.WaitForNotificationWithTimeout(absl::Microseconds(options_.watch_interval_us))) {
      UpdateHealth();
      service_.calls().CheckSlow(MonotonicClock().NowUs(),
                                 front_->options().slow_reader_timeout_us);
    }
  }

  // The intake has no news to give: its state is asked for.
  void UpdateHealth() {
    const ServerState state = front_->Status().state;
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
  Front* const front_;
  TextGenerationService service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  absl::Mutex health_mutex_;
  int health_ ABSL_GUARDED_BY(health_mutex_) = -1;
  absl::Notification stop_;
  std::atomic<bool> stopped_{false};
  Thread watcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options,
                                                              Front* front) {
  auto server = std::make_unique<CallbackGrpcServer>(options, front);
  WEFT_RETURN_IF_ERROR(server->Build());
  return server;
}

}  // namespace weft::router

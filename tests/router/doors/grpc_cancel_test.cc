// gRPC calls that end, by their client or their server, just as their message is being read: the
// two are told on different threads.

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/check.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/sync_stream.h"
#include "router/doors/grpc/call_methods.h"
#include "router/doors/grpc/service.h"
#include "router/doors/grpc/side_call.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/grpc_flood.h"
#include "tests/router/doors/raw_client.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kHeld[] = "/weft.test.Held/Held";

// A call that reads its message when the test says so.
struct Hold {
  absl::Notification came;
  absl::Notification read_now;
  absl::Notification read;
  absl::Status status;
  HealthCheckRequest message;
};

class HeldCall : public SideCall {
 public:
  HeldCall(const GrpcDoor& door, grpc::CallbackServerContext* context, Hold* hold)
      : SideCall(door, context, "Held"), hold_(hold) {}

 private:
  void OnMessage() override {
    hold_->came.Notify();
    hold_->read_now.WaitForNotification();
    hold_->status = Take(&hold_->message);
    hold_->read.Notify();
  }
  void OnWritten() override {}

  Hold* const hold_;
};

struct HeldMethods : public CallMethods {
  HeldMethods(const GrpcDoor& door, Hold* hold) {
    Add(kHeld, [door, hold](grpc::CallbackServerContext* context) {
      return std::make_shared<HeldCall>(door, context, hold);
    });
  }
};

struct HeldServer {
  explicit HeldServer(Hold* hold)
      : doors(&intake, &probe, {}),
        gate(ConnectionGate::Listen("127.0.0.1:0", {}).value()),
        watch(gate.get(), {}, {}),
        calls({}),
        methods({&doors, &watch, &calls, /*message_bytes_max=*/1000, /*open=*/true}, hold) {
    testing::KeepGrpcThreads();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&methods);
    server = builder.BuildAndStart();
    WEFT_CHECK(server != nullptr);
    channel =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  }
  ~HeldServer() { server->Shutdown(std::chrono::system_clock::now()); }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<ConnectionGate> gate;
  GrpcCallWatch watch;
  GrpcCalls calls;
  HeldMethods methods;
  std::unique_ptr<grpc::Server> server;
  std::shared_ptr<grpc::Channel> channel;
};

TEST_CASE("Who ends a gRPC call leaves its message to who reads it", "[router][grpc]") {
  Hold hold;
  HeldServer server(&hold);
  grpc::ClientContext context;
  using Stream = grpc::ClientReaderWriter<HealthCheckRequest, HealthCheckResponse>;
  const std::unique_ptr<Stream> stream(
      grpc::internal::ClientReaderWriterFactory<HealthCheckRequest, HealthCheckResponse>::Create(
          server.channel.get(),
          grpc::internal::RpcMethod(kHeld, grpc::internal::RpcMethod::BIDI_STREAMING), &context));
  HealthCheckRequest request;
  request.set_service("whole");
  REQUIRE(stream->Write(request));
  hold.came.WaitForNotification();
  server.calls.CloseAll(absl::UnavailableError("the server stops"));
  hold.read_now.Notify();
  hold.read.WaitForNotification();
  CHECK(hold.status.ok());
  CHECK(hold.message.service() == "whole");
  CHECK(stream->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
}

struct Server {
  Server() : doors(&intake, &probe, {}) {
    testing::KeepGrpcThreads();
    GrpcServerOptions options;
    options.calls_per_connection_s = 1'000'000;  // resets are no flood here
    auto started = GrpcServer::Start(options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~Server() { server->Stop(absl::ZeroDuration()); }

  // Calls on one connection. Each is reset some calls later, about when its message is read.
  void TakeBackCalls(const std::string& path, const std::string& message) const {
    constexpr uint32_t kCalls = 400;
    RawClient client(static_cast<uint16_t>(server->port()));
    client.Send(Http2Preface());
    for (uint32_t i = 0; i < kCalls; ++i) {
      client.Send(Http2Call(2 * i + 1, path, message));
      const uint32_t late = i / 16 % 8;
      if (i >= late) client.Send(Http2Reset(2 * (i - late) + 1));
      if (client.WaitReadable(0)) client.ReadSome(1 << 16);
    }
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
};

// Mostly for the sanitizers: which thread comes first is left to chance.
TEST_CASE("gRPC calls may be taken back as their message comes", "[router][grpc]") {
  Server server;
  HealthCheckRequest watch;
  watch.set_service("weft.v1.TextGeneration");
  server.TakeBackCalls("/grpc.health.v1.Health/Watch", watch.SerializeAsString());
  grpc::reflection::v1::ServerReflectionRequest reflect;
  reflect.set_file_containing_symbol(std::string(4000, 'x'));
  server.TakeBackCalls("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                       reflect.SerializeAsString());
  weft::v1::GenerateRequest generate;
  generate.set_text("Hi");
  server.TakeBackCalls("/weft.v1.TextGeneration/Generate", generate.SerializeAsString());
  const auto stub = weft::v1::TextGeneration::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", server.server->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  weft::v1::GetModelResponse model;
  CHECK(stub->GetModel(&context, {}, &model).ok());
}

}  // namespace
}  // namespace weft::router

// gRPC's own services beside ours: what reflection describes, what those who watch health are told,
// and that neither takes the room of generation.

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/sync_stream.h"
#include "router/doors/grpc/descriptions.h"
#include "router/doors/grpc/service.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/keys.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

using google::protobuf::FileDescriptorProto;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

constexpr char kReflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kReflectionAlpha[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr auto kTooMany = grpc::StatusCode::RESOURCE_EXHAUSTED;

struct Server {
  explicit Server(DoorOptions door_options = {}) : doors(&intake, &probe, std::move(door_options)) {
    testing::KeepGrpcThreads();
    GrpcServerOptions options;
    options.watch_interval_us = 5'000;
    auto started = GrpcServer::Start(options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~Server() { server->Stop(absl::ZeroDuration()); }

  // On a connection of its own.
  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server->port()),
                                     grpc::InsecureChannelCredentials(), own);
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
};

// A stream of a method that this test has no stub for.
template <typename Request, typename Response>
class Stream {
 public:
  Stream(grpc::Channel* channel, const char* method) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_.reset(grpc::internal::ClientReaderWriterFactory<Request, Response>::Create(
        channel, grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::BIDI_STREAMING),
        &context_));
  }
  bool Send(const Request& request) { return stream_->Write(request); }
  bool Next(Response* response) { return stream_->Read(response); }
  // Waits for the server's status.
  grpc::Status Finish() {
    stream_->WritesDone();
    Response rest;
    while (stream_->Read(&rest)) {
    }
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Request, Response>> stream_;
};

using Reflection = Stream<ServerReflectionRequest, ServerReflectionResponse>;
using Health = Stream<HealthCheckRequest, HealthCheckResponse>;

std::vector<std::string> FileNames(const ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const std::string& one : response.file_descriptor_response().file_descriptor_proto()) {
    FileDescriptorProto file;
    names.push_back(file.ParseFromString(one) ? file.name() : "malformed");
  }
  return names;
}

TEST_CASE("Reflection describes what is served, in both of its versions", "[router][grpc]") {
  TestKeys keys;
  keys.Add("somebody");
  Server server(keys.Load());  // it needs none
  const auto channel = server.Channel();
  for (const char* method : {kReflection, kReflectionAlpha}) {
    CAPTURE(method);
    Reflection stream(channel.get(), method);
    ServerReflectionRequest request;
    ServerReflectionResponse response;
    request.set_host("here");
    request.set_list_services("*");
    REQUIRE(stream.Send(request));
    REQUIRE(stream.Next(&response));
    CHECK(response.valid_host() == "here");
    CHECK(response.original_request().list_services() == "*");
    std::vector<std::string> services;
    for (const auto& one : response.list_services_response().service()) {
      services.push_back(one.name());
    }
    CHECK(services ==
          std::vector<std::string>{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection",
                                   "inference.GRPCInferenceService", "weft.v1.TextGeneration"});
    // Each of them by name, as grpcurl asks, on the same stream.
    for (const std::string& service : services) {
      CAPTURE(service);
      request.set_file_containing_symbol(service);
      REQUIRE(stream.Send(request));
      REQUIRE(stream.Next(&response));
      CHECK_FALSE(FileNames(response).empty());
    }
    CHECK(FileNames(response) ==
          std::vector<std::string>{"weft/v1/generation.proto", "weft/v1/types.proto"});
    CHECK(stream.Finish().ok());
  }
}

TEST_CASE("Descriptions answer by file, symbol and extension, and only of what is served",
          "[router][grpc]") {
  const Descriptions served({weft::v1::GenerateRequest::descriptor()->file()});
  ServerReflectionRequest request;
  request.set_file_by_filename("weft/v1/types.proto");
  CHECK(FileNames(served.Answer(request)) == std::vector<std::string>{"weft/v1/types.proto"});
  request.set_file_containing_symbol("weft.v1.TextGeneration.Generate");
  CHECK(FileNames(served.Answer(request)).front() == "weft/v1/generation.proto");
  // Linked into this process, and not served.
  request.set_file_by_filename("grpc/health/v1/health.proto");
  CHECK(served.Answer(request).error_response().error_code() == grpc::StatusCode::NOT_FOUND);
  request.set_file_containing_symbol("no.Such");
  CHECK(served.Answer(request).error_response().error_message() == "there is no such symbol");
  request.mutable_file_containing_extension()->set_containing_type("weft.v1.GenerateRequest");
  request.mutable_file_containing_extension()->set_extension_number(1);
  CHECK(served.Answer(request).error_response().error_code() == grpc::StatusCode::NOT_FOUND);
  request.set_all_extension_numbers_of_type("weft.v1.GenerateRequest");
  const ServerReflectionResponse none = served.Answer(request);
  CHECK(none.all_extension_numbers_response().base_type_name() == "weft.v1.GenerateRequest");
  CHECK(none.all_extension_numbers_response().extension_number_size() == 0);
  CHECK(served.Answer({}).error_response().error_code() == grpc::StatusCode::INVALID_ARGUMENT);

  // Extensions: google/protobuf/descriptor.proto is extended by a file of this test's own.
  google::protobuf::DescriptorPool pool;
  FileDescriptorProto base;
  google::protobuf::MessageOptions::descriptor()->file()->CopyTo(&base);
  REQUIRE(pool.BuildFile(base) != nullptr);
  FileDescriptorProto file;
  file.set_name("more.proto");
  file.add_dependency(base.name());
  auto* extension = file.add_extension();
  extension->set_name("more");
  extension->set_number(50'000);
  extension->set_extendee(".google.protobuf.MessageOptions");
  extension->set_label(google::protobuf::FieldDescriptorProto::LABEL_OPTIONAL);
  extension->set_type(google::protobuf::FieldDescriptorProto::TYPE_INT32);
  const Descriptions extended({pool.BuildFile(file)});
  request.set_all_extension_numbers_of_type("google.protobuf.MessageOptions");
  CHECK(extended.Answer(request).all_extension_numbers_response().extension_number(0) == 50'000);
  request.mutable_file_containing_extension()->set_containing_type(
      "google.protobuf.MessageOptions");
  request.mutable_file_containing_extension()->set_extension_number(50'000);
  CHECK(FileNames(extended.Answer(request)).front() == "more.proto");
}

TEST_CASE("A reflection request that is too large is refused", "[router][grpc]") {
  Server server;
  const auto channel = server.Channel();
  Reflection stream(channel.get(), kReflection);
  ServerReflectionRequest request;
  request.set_file_containing_symbol(std::string(5000, 'x'));
  REQUIRE(stream.Send(request));
  const grpc::Status status = stream.Finish();
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(absl::StrContains(status.error_message(), "at most 4096 are taken"));
}

TEST_CASE("Reflection streams are bounded in all, and newcomers are served", "[router][grpc]") {
  Server server;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<Reflection>> open;
  ServerReflectionRequest request;
  request.set_list_services("*");
  ServerReflectionResponse response;
  // Each has been answered and waits for its next request, until somebody else has need.
  for (int i = 0; i < 10; ++i) {
    channels.push_back(server.Channel());
    for (int k = 0; k < 8; ++k) {
      open.push_back(std::make_unique<Reflection>(channels.back().get(), kReflection));
      REQUIRE(open.back()->Send(request));
      CHECK(open.back()->Next(&response));
    }
  }
  // 80 came and 64 may wait for a request; an answer may still be on its way to some.
  size_t refused = 0;
  for (auto& one : open) {
    const grpc::Status status = one->Finish();
    if (!status.ok()) CHECK(status.error_code() == kTooMany);
    refused += status.ok() ? 0 : 1;
  }
  CHECK(refused >= 1);
  CHECK(refused <= 16);
}

TEST_CASE("Those who watch health are told of each change", "[router][grpc]") {
  Server server;
  const auto channel = server.Channel();
  Health watch(channel.get(), kWatch);
  Health named(channel.get(), kWatch);
  Health unknown(channel.get(), kWatch);
  HealthCheckRequest request;
  REQUIRE(watch.Send(request));
  request.set_service("weft.v1.TextGeneration");
  REQUIRE(named.Send(request));
  request.set_service("nobody");
  REQUIRE(unknown.Send(request));
  HealthCheckResponse response;
  for (Health* one : {&watch, &named}) {
    REQUIRE(one->Next(&response));
    CHECK(response.status() == HealthCheckResponse::SERVING);
  }
  REQUIRE(unknown.Next(&response));
  CHECK(response.status() == HealthCheckResponse::SERVICE_UNKNOWN);
  server.intake.SetStatus({ServerState::kRecovering, 100, "", 0});
  for (Health* one : {&watch, &named}) {
    REQUIRE(one->Next(&response));
    CHECK(response.status() == HealthCheckResponse::NOT_SERVING);
  }
  Health check(channel.get(), kCheck);
  REQUIRE(check.Send(request));
  CHECK(check.Finish().error_code() == grpc::StatusCode::NOT_FOUND);
  // The server's end is theirs, however long it would wait for calls.
  const int64_t start_us = MonotonicClock().NowUs();
  server.server->Stop(absl::Seconds(60));
  CHECK(watch.Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(MonotonicClock().NowUs() - start_us < 30'000'000);
}

TEST_CASE("Watches of health are bounded by connection and in all, generation has its own room",
          "[router][grpc]") {
  Server server;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<Health>> open;
  HealthCheckResponse response;
  const auto watch = [&](grpc::Channel* channel) {
    open.push_back(std::make_unique<Health>(channel, kWatch));
    return open.back()->Send({}) && open.back()->Next(&response);
  };
  for (int i = 0; i < 64; ++i) {
    channels.push_back(server.Channel());
    for (int k = 0; k < 16; ++k) REQUIRE(watch(channels.back().get()));
    if (i > 0) continue;
    CHECK_FALSE(watch(channels.back().get()));
    CHECK(open.back()->Finish().error_code() == kTooMany);
    open.pop_back();
  }
  channels.push_back(server.Channel());
  CHECK_FALSE(watch(channels.back().get()));
  CHECK(open.back()->Finish().error_code() == kTooMany);
  open.pop_back();

  Health check(channels.back().get(), kCheck);
  REQUIRE(check.Send({}));
  CHECK(check.Finish().ok());
  grpc::ClientContext context;
  const auto stub = weft::v1::TextGeneration::NewStub(channels.front());
  weft::v1::GetModelResponse model;
  CHECK(stub->GetModel(&context, {}, &model).ok());
  for (auto& one : open) one->Cancel();
}

}  // namespace
}  // namespace weft::router

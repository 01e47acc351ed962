// Which connections of the gRPC door make room when there are too many.

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "grpcpp/grpcpp.h"
#include "router/doors/grpc/service.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/keys.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

struct Server {
  explicit Server(size_t connections_max, DoorOptions door_options = {})
      : keys(door_options.identity != nullptr), doors(&intake, &probe, std::move(door_options)) {
    testing::KeepGrpcThreads();
    GrpcServerOptions options;
    options.connections_max = connections_max;
    auto started = GrpcServer::Start(options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~Server() { server->Stop(absl::ZeroDuration()); }

  // Calls of GetModel that ended so, in this process.
  int Ended(const std::string& code) {
    const std::string text = probe.Render();
    const std::string name =
        absl::StrCat("grpc_server_handled_total{grpc_code=\"", code,
                     "\",grpc_method=\"GetModel\",grpc_service=\"weft.v1.TextGeneration\"} ");
    const size_t at = text.find(name);
    return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + name.size());
  }

  const bool keys;
  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
};

// A connection of its own.
class Client {
 public:
  explicit Client(Server& server) : server_(server) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server.server->port()),
                                         grpc::InsecureChannelCredentials(), own);
    stub_ = weft::v1::TextGeneration::NewStub(channel_);
  }
  // Until the server knows its end too: then it is no longer worked on.
  grpc::StatusCode GetModel(const std::string& key = "") const {
    const std::string code = key.empty() && server_.keys ? "UNAUTHENTICATED" : "OK";
    const int before = server_.Ended(code);
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + seconds(60));
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    weft::v1::GetModelResponse response;
    const grpc::StatusCode status = stub_->GetModel(&context, {}, &response).error_code();
    const auto end = system_clock::now() + seconds(60);
    while (server_.Ended(code) == before && system_clock::now() < end) {
    }
    return status;
  }
  std::unique_ptr<grpc::ClientReader<weft::v1::GenerateResponse>> Generate(
      grpc::ClientContext* context) const {
    weft::v1::GenerateRequest request;
    request.set_text("Hi");
    return stub_->Generate(context, request);
  }
  bool connected() const { return channel_->GetState(false) == GRPC_CHANNEL_READY; }
  // Waits for that; it does not connect again by itself.
  bool IsEnded() const {
    return channel_->WaitForStateChange(GRPC_CHANNEL_READY, system_clock::now() + seconds(60));
  }

 private:
  Server& server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<weft::v1::TextGeneration::Stub> stub_;
};

TEST_CASE("The gRPC connection that was used least recently makes room for a newcomer",
          "[router][grpc]") {
  Server server(3);
  server.intake.SetScript({});
  const Client busy(server);
  const Client first(server);
  const Client second(server);
  grpc::ClientContext context;
  const auto stream = busy.Generate(&context);
  const auto running = server.intake.WaitRequest(0);
  REQUIRE(running != nullptr);
  CHECK(first.GetModel() == grpc::StatusCode::OK);
  CHECK(second.GetModel() == grpc::StatusCode::OK);
  CHECK(first.GetModel() == grpc::StatusCode::OK);

  const Client third(server);
  CHECK(third.GetModel() == grpc::StatusCode::OK);
  CHECK(second.IsEnded());
  const Client fourth(server);
  CHECK(fourth.GetModel() == grpc::StatusCode::OK);
  CHECK(first.IsEnded());
  CHECK(third.connected());
  // Whoever was ended comes back as a newcomer, and a call that runs is left alone.
  CHECK(second.GetModel() == grpc::StatusCode::OK);
  running->Send({Started(), Token(1, "x"), Finished(FinishReason::kEosToken, 1)});
  weft::v1::GenerateResponse response;
  while (stream->Read(&response)) {
  }
  CHECK(stream->Finish().ok());
}

TEST_CASE("gRPC connections without a good key make room before all others", "[router][grpc]") {
  TestKeys keys;
  const std::string key = keys.Add("somebody");
  Server server(4, keys.Load());
  const Client known(server);
  CHECK(known.GetModel(key) == grpc::StatusCode::OK);
  // It has been silent since before the others came, who were refused.
  const Client wrong(server);
  CHECK(wrong.GetModel() == grpc::StatusCode::UNAUTHENTICATED);
  const Client none(server);
  CHECK(none.GetModel() == grpc::StatusCode::UNAUTHENTICATED);
  const Client again(server);
  CHECK(again.GetModel() == grpc::StatusCode::UNAUTHENTICATED);
  std::vector<std::unique_ptr<Client>> newcomers;
  for (const Client* leaves : {&wrong, &none, &again}) {
    newcomers.push_back(std::make_unique<Client>(server));
    CHECK(newcomers.back()->GetModel(key) == grpc::StatusCode::OK);
    CHECK(leaves->IsEnded());
    CHECK(known.connected());
  }
}

}  // namespace
}  // namespace weft::router

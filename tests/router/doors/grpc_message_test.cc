// Calls of the gRPC door whose heads come and whose messages do not, and answers that nobody takes:
// bounds in number and time.

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/sync_stream.h"
#include "router/doors/grpc/awaited_messages.h"
#include "router/doors/grpc/service.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/grpc_flood.h"
#include "tests/router/doors/keys.h"
#include "tests/router/doors/raw_client.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

constexpr char kGenerate[] = "/weft.v1.TextGeneration/Generate";
constexpr char kTokenize[] = "/weft.v1.TextGeneration/Tokenize";
constexpr char kGetModel[] = "/weft.v1.TextGeneration/GetModel";
constexpr auto kOk = grpc::StatusCode::OK;
constexpr auto kLate = grpc::StatusCode::DEADLINE_EXCEEDED;
constexpr auto kTooMany = grpc::StatusCode::RESOURCE_EXHAUSTED;

// A call whose head is sent and nothing else.
class SilentCall {
 public:
  SilentCall(grpc::Channel* channel, const char* method, const std::string& key = "") {
    if (!key.empty()) context_.AddMetadata("authorization", "Bearer " + key);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream_.reset(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel, grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::BIDI_STREAMING),
            &context_));
  }
  // Waits for the server's status.
  grpc::Status Finish() {
    grpc::ByteBuffer answer;
    while (stream_->Read(&answer)) {
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
};

struct Server {
  explicit Server(GrpcServerOptions options, DoorOptions door_options = {})
      : doors(&intake, &probe, std::move(door_options)) {
    testing::KeepGrpcThreads();
    options.watch_interval_us = 20'000;
    auto started = GrpcServer::Start(options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~Server() { server->Stop(absl::ZeroDuration()); }

  uint16_t port() const { return static_cast<uint16_t>(server->port()); }
  // On a connection of its own.
  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port()),
                                     grpc::InsecureChannelCredentials(), own);
  }
  grpc::Status GetModel() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    weft::v1::GetModelResponse response;
    return weft::v1::TextGeneration::NewStub(Channel())->GetModel(&context, {}, &response);
  }
  // Whether GetModel comes to answer so, within 10 s.
  bool Becomes(grpc::StatusCode wanted) const {
    const int64_t end_us = MonotonicClock().NowUs() + 10'000'000;
    while (MonotonicClock().NowUs() < end_us) {
      if (GetModel().error_code() == wanted) return true;
    }
    return false;
  }
  // Calls of Tokenize that ended with `code` so far, in this process.
  int Ended(const std::string& code) {
    const std::string text = probe.Render();
    const std::string name =
        absl::StrCat("grpc_server_handled_total{grpc_code=\"", code,
                     "\",grpc_method=\"Tokenize\",grpc_service=\"weft.v1.TextGeneration\"} ");
    const size_t at = text.find(name);
    return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + name.size());
  }
  // Whether there come to be so many, within 10 s.
  bool WaitEnded(const std::string& code, int count) {
    const int64_t end_us = MonotonicClock().NowUs() + 10'000'000;
    while (MonotonicClock().NowUs() < end_us) {
      if (Ended(code) == count) return true;
    }
    return false;
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
};

TEST_CASE("A gRPC call whose message does not come in time is told so", "[router][grpc]") {
  GrpcServerOptions options;
  options.message_timeout_us = 100'000;
  Server server(options);
  const auto channel = server.Channel();
  for (const char* method : {kGenerate, kTokenize, kGetModel}) {
    CAPTURE(method);
    const grpc::Status status = SilentCall(channel.get(), method).Finish();
    CHECK(status.error_code() == kLate);
    CHECK(absl::StrContains(status.error_message(), "the message did not come within 100ms"));
  }
  CHECK(server.intake.request_count() == 0);
  // Half a message is none.
  const int late = server.Ended("DEADLINE_EXCEEDED");
  RawClient half(server.port());
  std::string call = Http2Call(1, kTokenize, std::string(1000, 'x'));
  half.Send(Http2Preface() + call.substr(0, call.size() - 500));
  CHECK(server.WaitEnded("DEADLINE_EXCEEDED", late + 1));
  CHECK(server.GetModel().ok());
}

TEST_CASE("A gRPC call without a good key is refused before its message", "[router][grpc]") {
  TestKeys keys;
  const std::string good = keys.Add("a");
  GrpcServerOptions options;
  options.message_timeout_us = 300'000;
  Server server(options, keys.Load());
  const auto channel = server.Channel();
  for (const char* method : {kGenerate, kTokenize, kGetModel}) {
    CAPTURE(method);
    CHECK(SilentCall(channel.get(), method, "weft-no").Finish().error_code() ==
          grpc::StatusCode::UNAUTHENTICATED);
  }
  CHECK(SilentCall(channel.get(), kGenerate, good).Finish().error_code() == kLate);
}

TEST_CASE("Silent gRPC calls of one connection are few, and leave the others room",
          "[router][grpc]") {
  GrpcServerOptions options;
  options.calls_max = 2;
  options.awaited_calls_per_connection_max = 2;
  Server server(options);
  const std::string code = "RESOURCE_EXHAUSTED";
  const int before = server.Ended(code);
  const auto channel = server.Channel();
  std::vector<std::unique_ptr<SilentCall>> silent;
  for (int i = 0; i < 5; ++i) {
    silent.push_back(std::make_unique<SilentCall>(channel.get(), kTokenize));
  }
  // They do not count as calls that are worked on.
  CHECK(server.GetModel().ok());
  CHECK(server.WaitEnded(code, before + 3));
}

TEST_CASE("One silent gRPC call too many in all pushes out the oldest of who has most",
          "[router][grpc]") {
  GrpcServerOptions options;
  options.awaited_calls_max = 3;
  Server server(options);
  const std::string code = "RESOURCE_EXHAUSTED";
  const int before = server.Ended(code);
  const auto one = server.Channel();
  const auto two = server.Channel();
  SilentCall patient(one.get(), kTokenize);
  REQUIRE(server.GetModel().ok());
  SilentCall first(two.get(), kTokenize), second(two.get(), kTokenize);
  SilentCall third(two.get(), kTokenize);
  CHECK(server.WaitEnded(code, before + 1));
  CHECK(server.GetModel().ok());
  CHECK(server.WaitEnded(code, before + 2));
}

TEST_CASE("Awaited messages are bounded in number and time", "[router][grpc]") {
  AwaitedLimits limits;
  limits.calls_max = 4;
  limits.connection_calls_max = 1;
  limits.grace_us = 10;
  limits.timeout_us = 100;
  AwaitedMessages awaited(limits);
  char calls[6];
  const auto call = [&](int i) { return reinterpret_cast<GrpcCall*>(&calls[i]); };
  const int a = 0, b = 0;
  CHECK(awaited.Add(call(0), &a, 0) == nullptr);
  CHECK(awaited.Add(call(1), &b, 1) == nullptr);
  CHECK(awaited.Add(call(2), &b, 2) == nullptr);
  CHECK(awaited.Add(call(3), &b, 3) == nullptr);
  // b has most, and the oldest of it goes.
  CHECK(awaited.Add(call(4), &a, 4) == call(1));
  CHECK(awaited.size() == 4);
  // Within the grace nobody is too many.
  CHECK(awaited.TakeOverdue(9).too_many.empty());
  AwaitedMessages::Overdue overdue = awaited.TakeOverdue(13);
  CHECK(overdue.late.empty());
  CHECK(overdue.too_many == std::vector<GrpcCall*>{call(0), call(2)});
  awaited.Remove(call(3));
  awaited.Remove(call(3));
  CHECK(awaited.TakeOverdue(103).late.empty());
  CHECK(awaited.TakeOverdue(104).late == std::vector<GrpcCall*>{call(4)});
  CHECK(awaited.size() == 0);
}

TEST_CASE("Eight whole messages of 4 MB at once on one gRPC connection are served",
          "[router][grpc]") {
  Server server({});
  const auto stub = weft::v1::TextGeneration::NewStub(server.Channel());
  weft::v1::GenerateRequest request;
  request.set_text(std::string((4u << 20) - 64, 'x'));
  std::vector<std::future<bool>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::async(std::launch::async, [&] {
      grpc::ClientContext context;
      const auto reader = stub->Generate(&context, request);
      weft::v1::GenerateResponse response;
      while (reader->Read(&response)) {
      }
      return reader->Finish().ok();
    }));
  }
  for (std::future<bool>& call : calls) CHECK(call.get());
}

TEST_CASE("A gRPC answer that its client gives no room is let go of", "[router][grpc]") {
  DoorOptions door_options;
  // Long enough that a probe on a busy machine finds the only call still taken.
  door_options.slow_reader_timeout_us = 3'000'000;
  GrpcServerOptions options;
  options.calls_max = 1;
  Server server(options, door_options);
  RawClient stuck(server.port());
  // GenerateRequest{text: "Hi"}.
  stuck.Send(Http2PrefaceWithWindow(0) + Http2Call(1, kGenerate, "\x1a\x02Hi"));
  REQUIRE(server.intake.WaitRequest(0) != nullptr);
  CHECK(server.Becomes(kTooMany));
  CHECK(server.Becomes(kOk));
}

TEST_CASE("A gRPC connection whose client does not read is ended", "[router][grpc]") {
  DoorOptions door_options;
  door_options.slow_reader_timeout_us = 300'000;
  GrpcServerOptions options;
  options.connections_max = 1;
  Server server(options, door_options);
  RawClient deaf(server.port(), 4096);
  deaf.Send(Http2PrefaceWithWindow(0x7fffffff));
  // Answers of 16 KB, more than what the kernels hold between them. The library answers pings too.
  weft::v1::DetokenizeRequest request;
  for (int i = 0; i < 16'000; ++i) request.add_ids('x');
  for (uint32_t i = 0; i < 250; ++i) {
    deaf.Send(
        Http2Call(1 + 2 * i, "/weft.v1.TextGeneration/Detokenize", request.SerializeAsString()));
  }
  // There is room for one connection only.
  CHECK(server.Becomes(kOk));
}

}  // namespace
}  // namespace weft::router

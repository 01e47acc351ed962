// The gate before the gRPC port: addresses, caps, silent and rude clients, by real sockets.

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "router/doors/grpc/call_watch.h"
#include "router/doors/grpc/gate.h"
#include "router/doors/grpc/service.h"
#include "tests/common/temp_dir.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/grpc_flood.h"
#include "tests/router/doors/raw_client.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

constexpr char kGenerate[] = "/weft.v1.TextGeneration/Generate";
// GenerateRequest{text: "Hi"}.
constexpr char kHi[] = "\x1a\x02Hi";

struct Server {
  explicit Server(GrpcServerOptions options = {}) : doors(&intake, &probe, {}) {
    testing::KeepGrpcThreads();
    auto started = GrpcServer::Start(options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~Server() { server->Stop(absl::ZeroDuration()); }

  uint16_t port() const { return static_cast<uint16_t>(server->port()); }
  // A whole Generate call over a channel of its own.
  grpc::Status Generate(const std::string& address) const {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), own);
    const auto stub = weft::v1::TextGeneration::NewStub(channel);
    grpc::ClientContext context;
    weft::v1::GenerateRequest request;
    request.set_text("Hi");
    auto reader = stub->Generate(&context, request);
    weft::v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }
  grpc::Status Generate() const { return Generate(absl::StrCat("127.0.0.1:", port())); }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
};

bool HasIpv6() { return Listener::Open("[::1]:0").ok(); }

TEST_CASE("The gRPC door listens on every form of address", "[router][grpc]") {
  test::TempDir folder;
  const auto served = [](const std::string& address, const std::string& target) {
    GrpcServerOptions options;
    options.address = address;
    Server server(options);
    return server
        .Generate(absl::StrCat(target, server.port() == 0 ? "" : absl::StrCat(":", server.port())))
        .ok();
  };
  CHECK(served("127.0.0.1:0", "127.0.0.1"));
  CHECK(served("localhost:0", "localhost"));
  CHECK(served("0.0.0.0:0", "127.0.0.1"));
  if (HasIpv6()) {
    CHECK(served("[::1]:0", "[::1]"));
    CHECK(served("[::]:0", "127.0.0.1"));
    CHECK(served("0.0.0.0:0", "[::1]"));
  }
  const std::string path = folder.path() + "/door.sock";
  // Again, with the socket file that the first one may leave behind.
  CHECK(served("unix:" + path, "unix:" + path));
  CHECK(served("unix:" + path, "unix:" + path));
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("A gRPC address that cannot be listened on is named with the way out", "[router][grpc]") {
  const absl::StatusOr<Listener> first = Listener::Open("127.0.0.1:0");
  REQUIRE(first.ok());
  const std::string taken = absl::StrCat("127.0.0.1:", first->port());
  const absl::Status status = Listener::Open(taken).status();
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(absl::StrContains(status.message(), taken));
  CHECK(absl::StrContains(status.message(), "choose another --grpc-port"));
  for (const std::string address : {"127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", "unix:"}) {
    CAPTURE(address);
    const absl::Status bad = Listener::Open(address).status();
    CHECK(bad.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(bad.message(), address));
  }
  test::TempDir folder;
  const std::string file = "unix:" + folder.Write("file", "no socket");
  CHECK_FALSE(Listener::Open(file).ok());
  CHECK(std::filesystem::exists(file.substr(5)));
}

TEST_CASE("A socket file that somebody listens on is not taken away", "[router][grpc]") {
  test::TempDir folder;
  const std::string address = absl::StrCat("unix:", folder.path(), "/door.sock");
  const absl::StatusOr<Listener> first = Listener::Open(address);
  REQUIRE(first.ok());
  CHECK(Listener::Open(address).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(std::filesystem::exists(address.substr(5)));
}

TEST_CASE("A gRPC connection that makes no call in time is ended", "[router][grpc]") {
  GrpcServerOptions options;
  options.first_call_timeout_us = 200'000;
  Server server(options);
  RawClient mute(server.port());
  RawClient silent(server.port());
  silent.Send(Http2Preface());
  CHECK(mute.ReadToEnd().has_value());
  CHECK(silent.ReadToEnd().has_value());
  CHECK(server.Generate().ok());
}

TEST_CASE("A gRPC connection with a call is not ended for its age", "[router][grpc]") {
  GrpcServerOptions options;
  options.first_call_timeout_us = 100'000;
  Server server(options);
  server.intake.SetScript({});
  grpc::ClientContext context;
  const auto stub = weft::v1::TextGeneration::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", server.port()), grpc::InsecureChannelCredentials()));
  weft::v1::GenerateRequest request;
  request.set_text("Hi");
  auto reader = stub->Generate(&context, request);
  const auto running = server.intake.WaitRequest(0);
  REQUIRE(running != nullptr);
  // A connection that came later is ended: the first one's time has passed too.
  RawClient later(server.port());
  CHECK(later.ReadToEnd().has_value());
  running->Send({Started(), Token(1, "x"), Finished(FinishReason::kEosToken, 1)});
  weft::v1::GenerateResponse response;
  CHECK(reader->Read(&response));
  while (reader->Read(&response)) {
  }
  CHECK(reader->Finish().ok());
}

TEST_CASE("Silent gRPC connections push each other out and let callers in", "[router][grpc]") {
  GrpcServerOptions options;
  options.connections_max = 8;
  options.starting_connections_max = 4;
  Server server(options);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<RawClient>(server.port()));
    silent.back()->Send(Http2Preface());
  }
  CHECK(server.Generate().ok());
  // All but the youngest are gone; the call's own connection pushed out one more.
  for (int i = 0; i < 35; ++i) CHECK(silent[i]->ReadToEnd().has_value());
}

TEST_CASE("One gRPC connection too many is told so and closed", "[router][grpc]") {
  GrpcServerOptions options;
  options.connections_max = 2;
  Server server(options);
  server.intake.SetScript({});
  std::vector<std::unique_ptr<RawClient>> callers;
  for (size_t i = 0; i < 2; ++i) {
    callers.push_back(std::make_unique<RawClient>(server.port()));
    callers.back()->Send(Http2Preface() + Http2Call(1, kGenerate, kHi));
    REQUIRE(server.intake.WaitRequest(i) != nullptr);
  }
  RawClient late(server.port());
  const std::optional<std::string> answer = late.ReadToEnd();
  REQUIRE(answer.has_value());
  CHECK(absl::StrContains(*answer, "too many connections"));
  // A place that is left is free again.
  callers[0]->Close();
  server.intake.WaitRequest(0)->WaitCancelled();
  grpc::Status status;
  const int64_t end_us = MonotonicClock().NowUs() + 10'000'000;
  server.intake.SetScript(HelloScript());
  do {
    status = server.Generate();
  } while (!status.ok() && MonotonicClock().NowUs() < end_us);
  CHECK(status.ok());
}

TEST_CASE("A gRPC connection that resets its calls at once is ended, others go on",
          "[router][grpc]") {
  const std::string path =
      GENERATE(std::string(kGenerate), std::string("/weft.v1.TextGeneration/Tokenize"),
               std::string("/nobody.Knows/This"), std::string("/grpc.health.v1.Health/Check"),
               std::string("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"));
  CAPTURE(path);
  Server server;
  grpc::ClientContext context;
  const auto stub = weft::v1::TextGeneration::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", server.port()), grpc::InsecureChannelCredentials()));
  server.intake.SetScript({});
  weft::v1::GenerateRequest request;
  request.set_text("Hi");
  auto reader = stub->Generate(&context, request);
  const auto running = server.intake.WaitRequest(0);
  REQUIRE(running != nullptr);

  RawClient rude(server.port());
  rude.Send(Http2Preface());
  for (uint32_t i = 0; i < 20; ++i) {
    rude.Send(Http2ResetCalls(1 + 200 * i, 100, path, ""));
  }
  CHECK(rude.ReadToEnd().has_value());

  running->Send({Started(), Token(1, "x"), Finished(FinishReason::kEosToken, 1)});
  weft::v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  CHECK(reader->Finish().ok());
}

TEST_CASE("Fewer early resets than the allowance leave a gRPC connection alone", "[router][grpc]") {
  Server server;
  server.intake.SetScript({});
  RawClient hasty(server.port());
  hasty.Send(Http2Preface() + Http2ResetCalls(1, 100, kGenerate, kHi));
  // A call after them on the same connection still arrives: the last request is not cancelled.
  hasty.Send(Http2Call(1001, kGenerate, kHi));
  const int64_t end_us = MonotonicClock().NowUs() + 10'000'000;
  bool arrived = false;
  while (!arrived && MonotonicClock().NowUs() < end_us) {
    const size_t count = server.intake.request_count();
    for (size_t i = 0; i < count && !arrived; ++i) {
      const auto one = server.intake.WaitRequest(i);
      arrived = i + 1 == count && !one->cancelled();
    }
  }
  CHECK(arrived);
}

TEST_CASE("Calls of which little is known yet are bounded in all", "[router][grpc]") {
  auto gate = ConnectionGate::Listen("127.0.0.1:0", {});
  REQUIRE(gate.ok());
  CallBounds bounds;
  bounds.early_max = 2;
  GrpcCallWatch watch(gate->get(), {}, bounds);
  const int key = 0;
  watch.AddEarly(1);
  CHECK(watch.Arrived({&key}, 0));
  watch.AddEarly(1);
  CHECK_FALSE(watch.Arrived({&key}, 0));
  watch.AddEarly(-1);
  CHECK(watch.Arrived({&key}, 0));
}

TEST_CASE("Answers that clients do not take cost them their share, and nobody else",
          "[router][grpc]") {
  UntakenAnswers untaken(8);
  const int keys[3] = {};
  const void* greedy = &keys[0];
  const void* other = &keys[1];
  const void* newcomer = &keys[2];
  for (int i = 0; i < 7; ++i) untaken.Add(greedy);
  CHECK(untaken.MayCall(greedy));
  untaken.Add(other);
  // Eight in all: four for each.
  CHECK_FALSE(untaken.MayCall(greedy));
  CHECK(untaken.MayCall(other));
  CHECK(untaken.MayCall(newcomer));
  for (int i = 0; i < 4; ++i) untaken.Remove(greedy);
  CHECK(untaken.MayCall(greedy));
  untaken.Remove(other);
  for (int i = 0; i < 3; ++i) untaken.Remove(greedy);
  // As many connections as there may be answers, and more: each may still have one.
  const int many[9] = {};
  for (const int& one : many) {
    CHECK(untaken.MayCall(&one));
    untaken.Add(&one);
    CHECK(untaken.MayCall(&one) == (&one < &many[7]));
  }
}

TEST_CASE("One gRPC call too many in all is refused with a time to wait", "[router][grpc]") {
  GrpcServerOptions options;
  options.calls_max = 1;
  Server server(options);
  server.intake.SetScript({});
  RawClient first(server.port());
  first.Send(Http2Preface() + Http2Call(1, kGenerate, kHi));
  const auto running = server.intake.WaitRequest(0);
  REQUIRE(running != nullptr);
  CHECK(server.Generate().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  running->Send({Started(), Finished(FinishReason::kEosToken, 0)});
  server.intake.SetScript(HelloScript());
  grpc::Status status;
  const int64_t end_us = MonotonicClock().NowUs() + 10'000'000;
  do {
    status = server.Generate();
  } while (!status.ok() && MonotonicClock().NowUs() < end_us);
  CHECK(status.ok());
}

TEST_CASE("Headers of gRPC that never end, end their connection", "[router][grpc]") {
  GrpcServerOptions options;
  options.message_bytes_max = 64 << 10;
  options.unfinished_bytes_max = 1 << 20;
  Server server(options);
  RawClient endless(server.port());
  endless.Send(Http2Preface() + Http2OpenHeaders(1, kGenerate));
  const std::string more = Http2Continuation(1, 16'000);
  for (int i = 0; i < 500; ++i) endless.Send(more);
  CHECK(endless.ReadToEnd().has_value());
  CHECK(server.Generate().ok());
}

TEST_CASE("Messages of gRPC that came whole never end their connection", "[router][grpc]") {
  GrpcServerOptions options;
  options.message_bytes_max = 64 << 10;
  options.unfinished_bytes_max = 1 << 20;
  Server server(options);
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server.port()),
                                           grpc::InsecureChannelCredentials());
  const auto stub = weft::v1::TextGeneration::NewStub(channel);
  weft::v1::TokenizeRequest request;
  request.set_text(std::string(60'000, 'x'));
  // Until the gate has surely looked, each time at more bytes than may be unfinished.
  const int64_t end_us = MonotonicClock().NowUs() + 300'000;
  int calls = 0;
  while (calls < 40 || MonotonicClock().NowUs() < end_us) {
    grpc::ClientContext context;
    weft::v1::TokenizeResponse response;
    ++calls;
    REQUIRE(stub->Tokenize(&context, request, &response).ok());
  }
}

TEST_CASE("The gRPC door comes back after descriptors ran out", "[router][grpc]") {
  Server server;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The kernel finishes handshakes by itself, so these wait in the queue of the socket; the lowest
  // free descriptor says how many are open.
  std::vector<std::unique_ptr<RawClient>> waiting;
  const int lowest = dup(0);
  REQUIRE(lowest > 0);
  close(lowest);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(lowest) + 1;
  waiting.reserve(4);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  waiting.push_back(std::make_unique<RawClient>(server.port()));  // takes the last one
  // The spare descriptor turns it away; it does not wait for ever.
  const bool closed = waiting.back()->ReadToEnd().has_value();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(closed);
  waiting.clear();
  CHECK(server.Generate().ok());
}

}  // namespace
}  // namespace weft::router

// What of a gRPC connection's bytes counts as headers and messages that are not whole.

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/sync_stream.h"
#include "router/doors/grpc/connection.h"
#include "router/doors/grpc/listener.h"
#include "router/doors/grpc/service.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/keys.h"
#include "tests/router/doors/raw_client.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

// A connection whose server side is read by hand, as gRPC would.
class Pair {
 public:
  Pair()
      : listener_(Listener::Open("127.0.0.1:0").value()),
        client_(static_cast<uint16_t>(listener_.port())),
        fd_(accept(listener_.descriptors()[0], nullptr, nullptr)),
        connection(1, "ipv4:127.0.0.1:1", dup(fd_), 0) {
    WEFT_CHECK(fd_ >= 0);
  }
  ~Pair() { close(fd_); }

  // gRPC has read all of it.
  void Send(size_t bytes) {
    client_.Send(std::string(bytes, 'x'));
    std::string into(bytes, '\0');
    WEFT_CHECK(recv(fd_, into.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
  }
  // Some are forgiven with time.
  bool Unfinished(int64_t now_us, uint64_t bytes) {
    const uint64_t seen = connection.Look(now_us).unfinished;
    CAPTURE(seen, bytes);
    return seen <= bytes && seen + 100 >= bytes;
  }

 private:
  Listener listener_;
  RawClient client_;
  const int fd_;

 public:
  GrpcConnection connection;
};

TEST_CASE("What came before the oldest message that is not whole is not unfinished",
          "[router][grpc]") {
  Pair pair;
  pair.Send(10'000);
  CHECK(pair.Unfinished(10, 10'000));
  // Headers came whole after it, so that no headers go on since then. The message may.
  const uint64_t first = pair.connection.BeginMessage(20, 20, 0);
  CHECK(pair.Unfinished(30, 0));
  pair.Send(5'000);
  CHECK(pair.Unfinished(40, 5'000));
  // More calls; of one of them the message comes whole, another is refused.
  const uint64_t second = pair.connection.BeginMessage(50, 50, 0);
  const uint64_t third = pair.connection.BeginMessage(60, 60, 0);
  pair.Send(3'000);
  CHECK(pair.Unfinished(70, 8'000));
  pair.connection.EndMessage(second, 2'000);
  CHECK(pair.Unfinished(80, 6'000 - 7));  // and what frames add
  pair.connection.EndMessage(third, 0);
  CHECK(pair.Unfinished(90, 6'000 - 7));
  // The first one ends, and what it held is gone. What came since the last begin may be headers.
  pair.connection.EndMessage(first, 0);
  CHECK(pair.Unfinished(100, 3'000));
  pair.connection.EndMessage(pair.connection.BeginMessage(110, 110, 0), 0);
  CHECK(pair.Unfinished(120, 0));
}

TEST_CASE("A call that is heard of late settles nothing that came after its headers",
          "[router][grpc]") {
  Pair pair;
  pair.Send(1'000);
  CHECK(pair.Unfinished(10, 1'000));
  pair.Send(9'000);
  CHECK(pair.Unfinished(30, 10'000));
  // Its headers came before the last look: the 9,000 may be its message.
  pair.connection.BeginMessage(20, 35, 0);
  CHECK(pair.Unfinished(40, 10'000));
}

TEST_CASE("What was read is noted between two looks, when calls begin", "[router][grpc]") {
  Pair pair;
  pair.Send(1'000);
  pair.connection.EndMessage(pair.connection.BeginMessage(2'000, 2'000, 0), 0);
  pair.Send(1'000);
  pair.connection.EndMessage(pair.connection.BeginMessage(4'000, 4'000, 0), 0);
  pair.Send(1'000);
  // The first two thousand were read before the last of these, and the third one after it.
  pair.connection.EndMessage(pair.connection.BeginMessage(4'500, 4'500, 0), 0);
  CHECK(pair.Unfinished(5'000, 1'000 - 327));  // what is forgiven in 5 ms
}

struct Server {
  explicit Server(DoorOptions door_options = {}) : doors(&intake, &probe, std::move(door_options)) {
    testing::KeepGrpcThreads();
    GrpcServerOptions options;
    options.message_bytes_max = 64 << 10;
    options.unfinished_bytes_max = 4 << 20;  // half of it on one connection
    auto started = GrpcServer::Start(options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
    channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()),
                                  grpc::InsecureChannelCredentials());
    stub = weft::v1::TextGeneration::NewStub(channel);
    // On the same connection, for the whole test.
    intake.SetScript({});
  }
  ~Server() { server->Stop(absl::ZeroDuration()); }

  // Until the gate has surely looked, each time at more bytes than may be unfinished.
  template <typename Call>
  void CallOften(Call call) {
    const int64_t end_us = MonotonicClock().NowUs() + 500'000;
    for (int calls = 0; calls < 600 || MonotonicClock().NowUs() < end_us; ++calls) call(calls);
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<weft::v1::TextGeneration::Stub> stub;
};

TEST_CASE("Large headers of gRPC that came whole never end their connection", "[router][grpc]") {
  Server server;
  // A message that is slow to come keeps what follows it from being settled.
  grpc::ClientContext slow;
  const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> silent(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          server.channel.get(),
          grpc::internal::RpcMethod("/weft.v1.TextGeneration/Tokenize",
                                    grpc::internal::RpcMethod::BIDI_STREAMING),
          &slow));
  server.CallOften([&](int calls) {
    grpc::ClientContext context;
    context.AddMetadata("x-user-context", absl::StrCat(calls, std::string(7'000, 'x')));
    weft::v1::GetModelResponse response;
    REQUIRE(server.stub->GetModel(&context, {}, &response).ok());
  });
  slow.TryCancel();
  silent->Finish();
}

TEST_CASE("Messages of refused gRPC calls do not end a connection that others share",
          "[router][grpc]") {
  TestKeys keys;
  const std::string key = keys.Add("somebody");
  Server server(keys.Load());
  grpc::ClientContext good;
  good.AddMetadata("authorization", "Bearer " + key);
  weft::v1::GenerateRequest generate;
  generate.set_text("Hi");
  const auto stream = server.stub->Generate(&good, generate);
  const auto running = server.intake.WaitRequest(0);
  REQUIRE(running != nullptr);
  weft::v1::TokenizeRequest request;
  request.set_text(std::string(60'000, 'x'));
  server.CallOften([&](int /*calls*/) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer weft-wrong");
    weft::v1::TokenizeResponse response;
    REQUIRE(server.stub->Tokenize(&context, request, &response).error_code() ==
            grpc::StatusCode::UNAUTHENTICATED);
  });
  running->Send({Started(), Token(1, "x"), Finished(FinishReason::kEosToken, 1)});
  weft::v1::GenerateResponse response;
  while (stream->Read(&response)) {
  }
  CHECK(stream->Finish().ok());
}

}  // namespace
}  // namespace weft::router

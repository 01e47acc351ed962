// A peer of the gRPC door that vanishes without a word: no end of its connection, no reset, and its
// stream has nothing to send that could fail.

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "router/doors/grpc/service.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/tcp_relay.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

// An answered ping, as it lies on the wire.
constexpr uint64_t kPingBytes = 17;

TEST_CASE("A gRPC peer that goes silent loses its request within the keepalive's bound",
          "[router][grpc]") {
  testing::KeepGrpcThreads();
  Probe probe;
  FakeEntrance intake;
  intake.SetScript({});
  DoorContext doors(&intake, &probe, {});
  GrpcServerOptions options;
  options.keepalive_us = 300'000;
  options.keepalive_timeout_us = 300'000;
  auto server = GrpcServer::Start(options, &doors);
  WEFT_CHECK_MSG(server.ok(), std::string(server.status().message()));
  TcpRelay relay(static_cast<uint16_t>((*server)->port()));
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", relay.port()),
                                           grpc::InsecureChannelCredentials());
  const auto stub = weft::v1::TextGeneration::NewStub(channel);
  grpc::ClientContext context;
  weft::v1::GenerateRequest call;
  call.set_text("Hi");
  const auto reader = stub->Generate(&context, call);
  const auto request = intake.WaitRequest(0);
  REQUIRE(request != nullptr);
  request->Send({Started(), Token(1, "x")});
  weft::v1::GenerateResponse response;
  REQUIRE(reader->Read(&response));

  // A stream that is silent for many times the bound goes on, as long as its peer answers pings.
  REQUIRE(relay.WaitToServer(relay.to_server() + 5 * kPingBytes));
  CHECK_FALSE(request->cancelled());

  relay.GoSilent();
  const int64_t silent_us = MonotonicClock().NowUs();
  CHECK(request->WaitCancelled() == CancelReason::kClientGone);
  const int64_t took_us = MonotonicClock().NowUs() - silent_us;
  INFO("cancelled " << took_us << " us after the last byte");
  // Five times the bound, for busy machines; without pings it would take the kernel minutes.
  CHECK(took_us < 5 * (options.keepalive_us + options.keepalive_timeout_us));
  context.TryCancel();
  (*server)->Stop(absl::ZeroDuration());
}

}  // namespace
}  // namespace weft::router

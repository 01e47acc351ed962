// HTTP connections over TLS: certificates of the moment, handshakes, clients that speak none.

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/hold_server.h"
#include "tests/router/doors/tls_client.h"

namespace weft::router {
namespace {

constexpr char kStreamBody[] = R"({"prompt":"Hi","stream":true})";

TEST_CASE("The port speaks TLS with the context of the moment", "[router][http]") {
  TestCertificate certificate("first");
  absl::Mutex mutex;
  std::shared_ptr<SSL_CTX> context = certificate.Context();
  HttpServerOptions options;
  options.tls_context = [&] {
    absl::MutexLock lock(&mutex);
    return context;
  };
  DoorsFixture fixture(options);
  TlsClient client(fixture.port());
  REQUIRE(client.connected());
  CHECK(client.subject() == "CN=first");
  client.Send(PostText("/v1/completions", kStreamBody) + GetText("/version"));
  CHECK(absl::StrContains(client.ReadUntil("0\r\n\r\n"), "data: [DONE]"));
  CHECK(absl::StrContains(client.ReadUntil("revision"), "200 OK"));
  {
    absl::MutexLock lock(&mutex);
    context = TestCertificate("second").Context();
  }
  TlsClient next(fixture.port());
  CHECK(next.subject() == "CN=second");
  client.Send(GetText("/health"));
  CHECK(absl::StrContains(client.ReadUntil("\r\n\r\n"), "200 OK"));
}

TEST_CASE("A large answer and a large body pass through TLS", "[router][http]") {
  TestCertificate certificate("x");
  HttpServerOptions options;
  options.tls_context = [context = certificate.Context()] { return context; };
  DoorsFixture fixture(options);
  TlsClient client(fixture.port());
  client.Send(PostText("/tokenize", R"({"inputs":")" + std::string(100'000, 'a') + "\"}"));
  // Each letter is a token of its own; the last one says where it stops.
  CHECK(absl::StrContains(client.ReadUntil("\"stop\":100000}]"), "200 OK"));
}

TEST_CASE("A TLS stream that its reader lets wait comes whole and in order", "[router][http]") {
  TestCertificate certificate("x");
  HttpServerOptions options;
  options.io_threads = 1;
  options.tls_context = [context = certificate.Context()] { return context; };
  DoorsFixture fixture(options);
  fixture.intake.SetScript({});
  TlsClient slow(fixture.port()), quick(fixture.port());
  slow.Send(PostText("/v1/completions", kStreamBody));
  const auto first = fixture.intake.WaitRequest(0);
  quick.Send(PostText("/v1/completions", kStreamBody));
  const auto second = fixture.intake.WaitRequest(1);
  first->Send({Started()});
  second->Send({Started()});
  // Far more than the kernel takes; the other stream's news come with it.
  constexpr int kTokens = 4'000;
  for (int i = 0; i < kTokens; ++i) {
    first->Send({Token(10, absl::StrCat("<", i, ">", std::string(300, 'x')))});
    if (i % 100 == 0) second->Send({Token(11, absl::StrCat("<", i, ">"))});
  }
  second->Send({Finished(FinishReason::kEosToken, kTokens / 100)});
  CHECK(absl::StrContains(quick.ReadUntil("0\r\n\r\n"), "data: [DONE]"));
  first->Send({Finished(FinishReason::kEosToken, kTokens)});
  const std::string all = slow.ReadUntil("0\r\n\r\n");
  size_t at = 0;
  for (int i = 0; i < kTokens && at != std::string::npos; ++i) {
    at = all.find(absl::StrCat("\"<", i, ">x"), at);
  }
  CHECK(at != std::string::npos);
  CHECK(absl::StrContains(all, "data: [DONE]"));
  // The connection goes on.
  slow.Send(GetText("/version"));
  CHECK(absl::StrContains(slow.ReadUntil("revision"), "200 OK"));
}

TEST_CASE("A client of a TLS port that speaks none is told so", "[router][http]") {
  TestCertificate certificate("x");
  HttpServerOptions options;
  options.tls_context = [context = certificate.Context()] { return context; };
  DoorsFixture fixture(options);
  RawClient client(fixture.port());
  client.Send(GetText("/health"));
  const auto response = client.Read();
  REQUIRE(response.has_value());
  CHECK(response->status == 400);
  CHECK(absl::StrContains(response->body, "https://"));
  CHECK(client.WaitClosed());
  RawClient broken(fixture.port());
  broken.Send(std::string("\x16\x03\x01\x00\x05hello", 10));
  CHECK(broken.ReadToEnd().has_value());
}

TEST_CASE("Handshakes have a deadline and a limit, and the oldest gives way", "[router][http]") {
  TestCertificate certificate("x");
  HttpServerOptions options;
  options.io_threads = 1;
  options.limits.handshakes_max = 2;
  options.tls_context = [context = certificate.Context()] { return context; };
  {
    DoorsFixture fixture(options);
    RawClient first(fixture.port()), second(fixture.port());
    second.Send("\x16");
    TlsClient third(fixture.port());
    CHECK(third.connected());
    CHECK(first.WaitClosed());
  }
  options.limits.header_timeout_us = 60'000;
  DoorsFixture fixture(options);
  RawClient silent(fixture.port());
  CHECK(silent.ReadToEnd() == "");
}

TEST_CASE("A verified client certificate comes with the request", "[router][http]") {
  TestCertificate certificate("me");
  HttpServerOptions options;
  const std::shared_ptr<SSL_CTX> context = certificate.Context();
  certificate.TrustIn(context.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  options.tls_context = [context] { return context; };
  HoldServer server(options);
  TlsClient client(server.server->port(), &certificate);
  client.Send(PostText("/hold", "{}"));
  const HttpRequest request = server.TakeRequest();
  CHECK(request.tls);
  CHECK(request.client_subject == "CN=me");
}

}  // namespace
}  // namespace weft::router

// What a connection does beside answering: refuses forms of smuggling and blind posts of browsers,
// sees clients that leave, keeps silent streams alive, holds bodies and readers to a pace, and
// finds places for newcomers.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/hold_server.h"
#include "tests/router/doors/http_forms.h"

namespace weft::router {
namespace {

constexpr char kStreamBody[] = R"({"prompt":"Hi","stream":true})";
constexpr char kGenerateBody[] = R"({"inputs":"Hi"})";

// -- Framing -------------------------------------------------------------------------------------

TEST_CASE("Every form of smuggling is a 400, closes the connection and reaches no handler",
          "[router][http]") {
  DoorsFixture fixture;
  const std::vector<HttpForm> forms = SmugglingForms();
  REQUIRE(forms.size() >= 40);
  for (const HttpForm& form : forms) {
    INFO(form.what);
    RawClient client(fixture.port());
    client.Send(form.bytes);
    const auto response = client.Read();
    REQUIRE(response.has_value());
    CHECK(response->status == 400);
    CHECK(response->headers.at("connection") == "close");
    CHECK(client.WaitClosed());
  }
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Good forms are answered, absolute targets and OPTIONS among them", "[router][http]") {
  DoorsFixture fixture;
  for (const HttpForm& form : GoodForms()) {
    INFO(form.what);
    RawClient client(fixture.port());
    client.Send(form.bytes + GetText("/version"));
    auto response = client.Read();
    REQUIRE(response.has_value());
    CHECK(response->status != 400);
    if (response->version == "HTTP/1.1" && response->headers.count("connection") == 0) {
      CHECK(absl::StrContains(client.Read().value_or(RawResponse()).body, "revision"));
    }
  }
  CHECK(Fetch(fixture.port(), "GET http://x:1/health?a HTTP/1.1\r\nhost: y\r\n\r\n").status == 200);
  const RawResponse all = Fetch(fixture.port(), "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n");
  CHECK(all.status == 204);
  CHECK(all.headers.at("allow") == "GET, HEAD, POST, OPTIONS");
  CHECK(all.headers.count("content-length") == 0);
  CHECK(
      Fetch(fixture.port(), "OPTIONS /generate HTTP/1.1\r\nhost: x\r\n\r\n").headers.at("allow") ==
      "POST, OPTIONS");
  CHECK(Fetch(fixture.port(), "OPTIONS /nothing HTTP/1.1\r\nhost: x\r\n\r\n").status == 404);
}

// -- Browsers ------------------------------------------------------------------------------------

TEST_CASE("Bodies that are not declared as JSON are a 415 that says what to do", "[router][http]") {
  DoorsFixture fixture;
  const auto post = [&](const std::string& headers) {
    return Fetch(fixture.port(), PostText("/generate", kGenerateBody, headers));
  };
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=x", "application/jsonp", "json"}) {
    INFO(type);
    const RawResponse response = post(absl::StrCat("content-type: ", type, "\r\n"));
    CHECK(response.status == 415);
    CHECK(absl::StrContains(response.body, "-H 'content-type: application/json'"));
    CHECK(absl::StrContains(response.body, type));
  }
  CHECK(fixture.intake.request_count() == 0);
  CHECK(post("").status == 200);
  CHECK(post("content-type: application/json\r\n").status == 200);
  CHECK(post("Content-Type: Application/JSON; charset=utf-8\r\n").status == 200);
  CHECK(post("content-type: application/problem+json\r\n").status == 200);
}

TEST_CASE("Pages of origins that are not listed may not call", "[router][http]") {
  HttpServerOptions options;
  options.cors_origins = {"https://chat.example"};
  DoorsFixture fixture(options);
  const auto post = [&](const std::string& headers) {
    return Fetch(fixture.port(), PostText("/generate", kGenerateBody, headers));
  };
  const std::string json = "content-type: application/json\r\n";
  for (const char* origin : {"https://evil.example", "null", "https://chat.example.evil",
                             "http://chat.example", "http://127.0.0.1"}) {
    INFO(origin);
    const RawResponse refused = post(absl::StrCat("origin: ", origin, "\r\n", json));
    CHECK(refused.status == 403);
    CHECK(refused.headers.count("access-control-allow-origin") == 0);
    CHECK(absl::StrContains(refused.body, origin));
  }
  CHECK(post("origin: https://chat.example\r\n").status == 415);  // a browser names its type
  CHECK(fixture.intake.request_count() == 0);
  const RawResponse allowed = post("origin: https://chat.example\r\n" + json);
  CHECK(allowed.status == 200);
  CHECK(allowed.headers.at("access-control-allow-origin") == "https://chat.example");
  CHECK(allowed.headers.at("vary") == "Origin");
  CHECK(post(json).headers.count("access-control-allow-origin") == 0);
}

TEST_CASE("Preflights are answered for listed origins only", "[router][http]") {
  HttpServerOptions options;
  options.cors_origins = {"https://chat.example"};
  DoorsFixture fixture(options);
  const auto ask = [&](const std::string& origin) {
    return Fetch(fixture.port(), absl::StrCat("OPTIONS /generate HTTP/1.1\r\nhost: x\r\norigin: ",
                                              origin, "\r\naccess-control-request-method: POST\r\n",
                                              "access-control-request-headers: x\r\n\r\n"));
  };
  const RawResponse yes = ask("https://chat.example");
  CHECK(yes.status == 204);
  CHECK(yes.headers.at("access-control-allow-origin") == "https://chat.example");
  CHECK(yes.headers.at("access-control-allow-methods") == "POST, OPTIONS");
  CHECK(absl::StrContains(yes.headers.at("access-control-allow-headers"), "authorization"));
  CHECK(absl::StrContains(yes.headers.at("access-control-allow-headers"), "x-api-key"));
  CHECK(ask("https://evil.example").status == 403);
  options.cors_origins = {"*"};
  DoorsFixture open(options);
  CHECK(Fetch(open.port(), GetText("/health", "origin: https://any.example\r\n"))
            .headers.at("access-control-allow-origin") == "*");
}

// -- Clients that leave --------------------------------------------------------------------------

TEST_CASE("A client that ends its side but reads on gets its answer", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/generate", kGenerateBody));
  const auto request = fixture.intake.WaitRequest(0);
  client.CloseWriting();
  // The server asks whether it still reads, in a way that every client skips.
  CHECK(client.Read()->status == 100);
  CHECK_FALSE(request->cancelled());
  request->Send({Started(), Token(1, "x"), Finished(FinishReason::kLength, 1)});
  CHECK(client.Read()->status == 200);
  CHECK(client.WaitClosed());
}

TEST_CASE("Requests that were pipelined before the client ended its side are answered",
          "[router][http]") {
  DoorsFixture fixture;
  RawClient client(fixture.port());
  client.Send(PostText("/generate", kGenerateBody) + GetText("/version"));
  client.CloseWriting();
  auto response = client.Read();
  while (response.has_value() && response->status == 100) response = client.Read();
  REQUIRE(response.has_value());
  CHECK(response->status == 200);
  response = client.Read();
  REQUIRE(response.has_value());
  CHECK(absl::StrContains(response->body, "revision"));
  CHECK(client.WaitClosed());
}

TEST_CASE("A client that leaves is seen although its side is full of pipelined bytes",
          "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/generate", kGenerateBody));
  const auto request = fixture.intake.WaitRequest(0);
  client.Send(std::string(60000, '\r'));
  client.Close();
  CHECK(request->WaitCancelled() == CancelReason::kClientGone);
}

TEST_CASE("A client that leaves while its body is read counts as gone", "[router][http]") {
  DoorsFixture fixture;
  const std::string series = "weft_requests_cancelled_total{by=\"client\",phase=\"text\"} ";
  const auto count = [&] {
    const std::string text = fixture.probe.Render();
    const size_t at = text.find(series);
    REQUIRE(at != std::string::npos);
    return std::atoi(text.c_str() + at + series.size());
  };
  const int before = count();
  // The thread that reads long bodies is busy until the client has left.
  absl::Notification left, read;
  REQUIRE(fixture.intake.Run(0, [&] { left.WaitForNotification(); }));
  RawClient client(fixture.port());
  client.Send(PostText("/generate",
                       absl::StrCat(R"({"inputs":")", std::string(kLongBodyBytes, 'x'), "\"}")));
  client.Close();
  // Its connection is there until the server has seen that; each answer gives it time. The first
  // one comes from a connection that was accepted later, so that this one was there before.
  for (int i = 0; i < 10'000; ++i) {
    REQUIRE(fixture.Get("/health").status == 200);
    if (absl::StrContains(fixture.probe.Render(), "\nweft_http_connections 0\n")) break;
  }
  CHECK(fixture.intake.admission().waiting() == 1);
  left.Notify();
  REQUIRE(fixture.intake.Run(0, [&] { read.Notify(); }));
  REQUIRE(read.WaitForNotificationWithTimeout(absl::Seconds(10)));
  CHECK(count() == before + 1);
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("An exchange is asked for a sign of life in each silence", "[router][http]") {
  HttpServerOptions options;
  options.limits.silence_us = 20'000;
  HoldServer server(options);
  RawClient client(server.server->port());
  client.Send(PostText("/hold", "{}"));
  const auto head = client.ReadHead();
  REQUIRE(head.has_value());
  CHECK(head->headers.at("content-type") == "text/event-stream");
  for (int i = 0; i < 3; ++i) CHECK(client.ReadChunk() == ": waiting\n\n");
  client.Close();
  CHECK(server.WaitGone());
}

// -- Pace ----------------------------------------------------------------------------------------

TEST_CASE("A body has one deadline, however many pieces it comes in", "[router][http]") {
  HttpServerOptions options;
  options.limits.body_timeout_us = 200'000;
  DoorsFixture fixture(options);
  RawClient client(fixture.port());
  client.Send("POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n");
  int pieces = 0;
  for (; pieces < 2000 && !client.WaitReadable(5); ++pieces) client.Send("{");
  CHECK(pieces < 2000);
  const auto response = client.Read();
  REQUIRE(response.has_value());
  CHECK(response->status == 408);
}

TEST_CASE("A body that trickles is dropped before its deadline", "[router][http]") {
  HttpServerOptions options;
  options.limits.body_window_us = 100'000;
  DoorsFixture fixture(options);
  RawClient client(fixture.port());
  client.Send("POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n");
  for (int i = 0; i < 2000 && !client.WaitReadable(5); ++i) client.Send("{");
  const auto response = client.Read();
  REQUIRE(response.has_value());
  CHECK(response->status == 408);
  CHECK(absl::StrContains(response->body, "too slowly"));
}

TEST_CASE("A reader below the minimum rate is dropped although it reads", "[router][http]") {
  HttpServerOptions options;
  options.limits.reader_window_us = 200'000;
  options.limits.reader_window_bytes_min = 4u << 20;
  DoorsFixture fixture(options);
  fixture.intake.SetScript({});
  RawClient client(fixture.port(), 4096);
  client.Send(PostText("/v1/completions", kStreamBody));
  const auto request = fixture.intake.WaitRequest(0);
  request->Send({Started()});
  const std::string text(256u << 10, 'x');
  for (int i = 0; i < 64; ++i) request->Send({Token(1, text)});
  CHECK(client.ReadHead()->status == 200);
  for (int i = 0; i < 5000 && !request->cancelled(); ++i) client.ReadSome(512);
  CHECK(request->WaitCancelled() == CancelReason::kSlowReader);
}

TEST_CASE("Bodies over the budget of all bodies are told to come back", "[router][http]") {
  HttpServerOptions options;
  options.limits.body_bytes_max = 400'000;
  options.limits.bodies_bytes_max = 1'000'000;
  DoorsFixture fixture(options);
  const std::string part = "POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 390000\r\n\r\n" +
                           std::string(300'000, ' ');
  std::vector<std::unique_ptr<RawClient>> clients;
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<RawClient>(fixture.port()));
    clients.back()->Send(part);
    // A small one is always served.
    CHECK(fixture.Post("/generate", kGenerateBody).status == 200);
  }
  for (const auto& client : clients) {
    if (!client->WaitReadable(200)) continue;
    const auto response = client->Read();
    REQUIRE(response.has_value());
    CHECK(response->status == 503);
    CHECK(response->headers.at("retry-after") == "1");
    ++refused;
  }
  CHECK(refused >= 4);
  clients.clear();
  options.limits.bodies_bytes_max = 500'000;
  CHECK_FALSE(
      HttpServer::Start(options, &fixture.routes, &fixture.admin_routes, &fixture.probe).ok());
}

TEST_CASE("A request carries what its body costs, and who asks", "[router][http]") {
  HoldServer server(HttpServerOptions{});
  RawClient client(server.server->port());
  client.Send(PostText("/hold?x=1", std::string(100, ' '),
                       "authorization: Bearer k\r\ntraceparent: 00-1-2-03\r\n"
                       "content-type: application/json\r\n"));
  const HttpRequest request = server.TakeRequest();
  CHECK(request.path == "/hold");
  CHECK(request.query == "x=1");
  CHECK(request.tenant == nullptr);  // this route asks for no key
  CHECK(request.traceparent == "00-1-2-03");
  CHECK(request.content_type == "application/json");
  CHECK(absl::StartsWith(request.peer, "127.0.0.1:"));
  CHECK_FALSE(request.tls);
  CHECK(request.charge.bytes() >= request.body.size());
}

// -- Places --------------------------------------------------------------------------------------

TEST_CASE("A newcomer takes the place of the connection that has said nothing for longest",
          "[router][http]") {
  HttpServerOptions options;
  options.connections_max = 2;
  options.io_threads = 1;
  DoorsFixture fixture(options);
  RawClient first(fixture.port()), second(fixture.port());
  second.Send("GET /hea");
  const std::string once = GetText("/health", "connection: close\r\n");
  for (int i = 0; i < 20; ++i) CHECK(Fetch(fixture.port(), once).status == 200);
  CHECK(first.WaitClosed());
}

TEST_CASE("Connections with a request under way never give way", "[router][http]") {
  HttpServerOptions options;
  options.connections_max = 1;
  options.io_threads = 1;
  options.admin_port = 0;
  DoorsFixture fixture(options);
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/generate", kGenerateBody));
  const auto request = fixture.intake.WaitRequest(0);
  for (int i = 0; i < 5; ++i) CHECK(fixture.Get("/health").status == 503);
  // The admin port has places of its own.
  CHECK(Fetch(fixture.server->admin_port(), GetText("/livez")).status == 200);
  request->Send({Started(), Token(1, "x"), Finished(FinishReason::kLength, 1)});
  CHECK(client.Read()->status == 200);
}

TEST_CASE("The admin port answers when the process has no descriptors left", "[router][http]") {
  HttpServerOptions options;
  options.admin_port = 0;
  DoorsFixture fixture(options);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 256;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<int> taken;
  for (int fd = dup(null); fd >= 0; fd = dup(null)) taken.push_back(fd);
  REQUIRE(!taken.empty());
  for (int i = 0; i < 5; ++i) {
    close(taken.back());  // for the client's end
    taken.pop_back();
    CHECK(Fetch(fixture.server->admin_port(), GetText("/livez")).status == 200);
    CHECK(Fetch(fixture.server->admin_port(), GetText("/livez")).status == 200);
    const int again = dup(null);
    if (again >= 0) taken.push_back(again);
  }
  for (const int fd : taken) close(fd);
  close(null);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(fixture.Get("/health").status == 200);
}

}  // namespace
}  // namespace weft::router

// The HTTP transport: framing, limits, time-outs, clients that leave or do not read.

#include "router/doors/http/server.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

constexpr char kStreamBody[] = R"({"prompt":"Hi","stream":true})";

HttpServerOptions Short() {
  HttpServerOptions options;
  options.limits.header_timeout_us = 60'000;
  options.limits.body_timeout_us = 60'000;
  options.limits.idle_timeout_us = 60'000;
  options.limits.linger_timeout_us = 60'000;
  return options;
}

TEST_CASE("Pipelined requests are answered in order", "[router][http]") {
  DoorsFixture fixture;
  RawClient client(fixture.port());
  client.Send(GetText("/health") + PostText("/v1/completions", R"({"prompt":"Hi"})") +
              GetText("/nothing") + GetText("/version"));
  CHECK(client.Read()->status == 200);
  CHECK(absl::StrContains(client.Read()->body, "Hello world"));
  CHECK(client.Read()->status == 404);
  CHECK(absl::StrContains(client.Read()->body, "revision"));
}

TEST_CASE("A request that was pipelined waits until the stream before it has ended",
          "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/v1/completions", kStreamBody) + PostText("/v1/completions", kStreamBody));
  const auto first = fixture.intake.WaitRequest(0);
  REQUIRE(first != nullptr);
  first->Send({Started(), Token(10, "one")});
  CHECK(client.ReadHead()->status == 200);
  CHECK(absl::StrContains(client.ReadChunk(), "one"));
  CHECK(fixture.intake.request_count() == 1);
  first->Send({Finished(FinishReason::kLength, 1)});
  const auto second = fixture.intake.WaitRequest(1);
  REQUIRE(second != nullptr);
  CHECK_FALSE(first->cancelled());
  CHECK(absl::StrContains(client.ReadChunk(), "[DONE]"));
  CHECK(client.ReadChunk().empty());
  second->Send({Started(), Token(10, "two"), Finished(FinishReason::kLength, 1)});
  CHECK(absl::StrContains(client.Read()->body, "two"));
}

TEST_CASE("A request may arrive byte by byte", "[router][http]") {
  DoorsFixture fixture;
  RawClient client(fixture.port());
  for (const char c : PostText("/v1/completions", R"({"prompt":"Hi"})")) {
    client.Send(std::string(1, c));
  }
  CHECK(client.Read()->status == 200);
}

TEST_CASE("Header and body have limits", "[router][http]") {
  HttpServerOptions options;
  options.limits.body_bytes_max = 1000;
  DoorsFixture fixture(options);
  const std::string big(2000, 'x');
  const RawResponse header =
      Fetch(fixture.port(), GetText("/health", "x-big: " + std::string(20000, 'h') + "\r\n"));
  CHECK(header.status == 431);
  CHECK(header.headers.at("connection") == "close");
  const RawResponse body = fixture.Post("/v1/completions", big);
  CHECK(body.status == 413);
  CHECK(absl::StrContains(body.body, R"({"error":{"message":"the body is longer)"));
  const RawResponse tgi = fixture.Post("/generate", big);
  CHECK(tgi.status == 413);
  CHECK(absl::StrContains(tgi.body, R"("error_type":"request")"));
  const RawResponse chunked =
      Fetch(fixture.port(),
            "POST /generate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n" +
                big + "\r\n0\r\n\r\n");
  CHECK(chunked.status == 413);
}

TEST_CASE("A chunked body is put together", "[router][http]") {
  DoorsFixture fixture;
  const RawResponse response =
      Fetch(fixture.port(),
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            "a\r\n{\"prompt\":\r\n5\r\n\"Hi\"}\r\n0\r\n\r\n");
  CHECK(response.status == 200);
  CHECK(std::get<std::string>(fixture.intake.WaitRequest(0)->input().prompt) == "Hi");
}

TEST_CASE("Malformed HTTP is a 400 and ends the connection", "[router][http]") {
  DoorsFixture fixture;
  for (const char* text :
       {"GARBAGE\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n", "GET\r\n\r\n",
        "POST /generate HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        "POST /generate HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"}) {
    INFO(text);
    RawClient client(fixture.port());
    client.Send(text);
    const auto response = client.Read();
    REQUIRE(response.has_value());
    CHECK(response->status == 400);
    CHECK(client.WaitClosed());
  }
  CHECK(Fetch(fixture.port(), "GET / HTTP/3.0\r\n\r\n").status >= 400);
}

TEST_CASE("Unknown paths and wrong methods are told apart", "[router][http]") {
  DoorsFixture fixture;
  CHECK(fixture.Get("/nothing").body == R"({"error":"no such path","error_type":"not_found"})");
  CHECK(fixture.Get("/v1/nothing").body ==
        R"({"error":{"message":"no such path","type":"invalid_request_error","param":null,)"
        R"("code":null}})");
  const RawResponse get = fixture.Get("/generate");
  CHECK(get.status == 405);
  CHECK(get.headers.at("allow") == "POST");
  const RawResponse post = fixture.Post("/metrics", "{}");
  CHECK(post.status == 405);
  CHECK(post.headers.at("allow") == "GET, HEAD");
  const RawResponse other = Fetch(fixture.port(), "DELETE / HTTP/1.1\r\nhost: x\r\n\r\n");
  CHECK(other.status == 405);
  CHECK(absl::StrContains(other.headers.at("allow"), "POST"));
  CHECK(absl::StrContains(other.headers.at("allow"), "GET, HEAD"));
  CHECK(fixture.Get("/health?x=1").status == 200);
}

TEST_CASE("HEAD answers as GET does, without the body", "[router][http]") {
  DoorsFixture fixture;
  RawClient client(fixture.port());
  client.Send("HEAD /version HTTP/1.1\r\nhost: x\r\n\r\n" + GetText("/version"));
  const auto head = client.Read(/*head=*/true);
  const auto get = client.Read();
  CHECK(head->status == 200);
  CHECK(head->headers.at("content-length") == get->headers.at("content-length"));
  CHECK(absl::StrContains(get->body, "version"));
}

TEST_CASE("HTTP/1.0 closes by default and streams until it closes", "[router][http]") {
  DoorsFixture fixture;
  const std::string head = absl::StrCat(
      "POST /v1/completions HTTP/1.0\r\ncontent-length: ", sizeof(kStreamBody) - 1, "\r\n");
  RawClient client(fixture.port());
  client.Send(head + "\r\n" + kStreamBody);
  const auto response = client.Read();
  REQUIRE(response.has_value());
  CHECK(response->headers.count("transfer-encoding") == 0);
  CHECK(response->headers.at("connection") == "close");
  CHECK(absl::EndsWith(response->body, "data: [DONE]\n\n"));
  RawClient kept(fixture.port());
  kept.Send("GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
  CHECK(kept.Read()->headers.at("connection") == "keep-alive");
  kept.Send("GET /health HTTP/1.0\r\n\r\n");
  CHECK(kept.Read()->headers.at("connection") == "close");
  CHECK(kept.WaitClosed());
}

TEST_CASE("Expect: 100-continue is answered before the body comes", "[router][http]") {
  DoorsFixture fixture;
  const std::string body = R"({"prompt":"Hi"})";
  const std::string head = absl::StrCat(
      "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ", body.size(), "\r\n");
  RawClient client(fixture.port());
  client.Send(head + "expect: 100-continue\r\n\r\n");
  CHECK(client.Read()->status == 100);
  client.Send(body);
  CHECK(client.Read()->status == 200);
  CHECK(Fetch(fixture.port(), head + "expect: coffee\r\n\r\n").status == 417);
  // A body that is too long is refused before it is sent.
  CHECK(Fetch(fixture.port(),
              "POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n"
              "expect: 100-continue\r\n\r\n")
            .status == 413);
}

TEST_CASE("Requests that do not arrive in time are refused", "[router][http]") {
  DoorsFixture fixture(Short());
  RawClient header(fixture.port());
  header.Send("GET /hea");
  CHECK(header.Read()->status == 408);
  CHECK(header.WaitClosed());
  RawClient body(fixture.port());
  body.Send("POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
  CHECK(body.Read()->status == 408);
  RawClient silent(fixture.port());
  CHECK(silent.ReadToEnd() == "");
  RawClient idle(fixture.port());
  idle.Send(GetText("/health"));
  CHECK(idle.Read()->status == 200);
  CHECK(idle.ReadToEnd() == "");
}

TEST_CASE("Waiting for an answer has no time-out of its own", "[router][http]") {
  DoorsFixture fixture(Short());
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/v1/completions", kStreamBody));
  const auto request = fixture.intake.WaitRequest(0);
  // Longer than all short time-outs: another connection's idle time-out marks the time.
  RawClient idle(fixture.port());
  CHECK(idle.ReadToEnd() == "");
  CHECK_FALSE(request->cancelled());
  request->Send({Started(), Token(1, "x"), Finished(FinishReason::kLength, 1)});
  CHECK(client.Read()->status == 200);
}

TEST_CASE("A client that leaves before the first token cancels its request", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/generate", R"({"inputs":"Hi"})"));
  const auto request = fixture.intake.WaitRequest(0);
  client.Close();
  CHECK(request->WaitCancelled() == CancelReason::kClientGone);
}

TEST_CASE("A client that leaves while it reads a stream cancels its request", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/v1/completions", kStreamBody));
  const auto request = fixture.intake.WaitRequest(0);
  request->Send({Started(), Token(1, "x")});
  CHECK(client.ReadHead()->status == 200);
  client.Close();
  CHECK(request->WaitCancelled() == CancelReason::kClientGone);
  request->Send({Token(2, "y")});  // after the end: dropped
}

TEST_CASE("A client that does not read is cancelled as a slow reader", "[router][http]") {
  HttpServerOptions options;
  options.limits.slow_reader_timeout_us = 100'000;
  DoorsFixture fixture(options);
  fixture.intake.SetScript({});
  RawClient client(fixture.port(), 4096);
  client.Send(PostText("/v1/completions", kStreamBody));
  const auto request = fixture.intake.WaitRequest(0);
  request->Send({Started()});
  const std::string text(256u << 10, 'x');
  for (int i = 0; i < 64 && !request->cancelled(); ++i) request->Send({Token(1, text)});
  CHECK(request->WaitCancelled() == CancelReason::kSlowReader);
}

TEST_CASE("A slow reader that goes on reading gets everything", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port(), 4096);
  client.Send(PostText("/v1/completions", kStreamBody));
  const auto request = fixture.intake.WaitRequest(0);
  request->Send({Started()});
  const std::string text(64u << 10, 'x');
  for (int i = 0; i < 100; ++i) request->Send({Token(1, text)});
  request->Send({Finished(FinishReason::kLength, 100)});
  const auto response = client.Read();
  REQUIRE(response.has_value());
  size_t tokens = 0;
  for (size_t at = response->body.find(text); at != std::string::npos;
       at = response->body.find(text, at + text.size())) {
    ++tokens;
  }
  CHECK(tokens == 100);
  CHECK(absl::EndsWith(response->body, "data: [DONE]\n\n"));
}

TEST_CASE("Events of one wake-up leave in one chunk, the headers with them", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/generate_stream", R"({"inputs":"Hi"})"));
  const auto request = fixture.intake.WaitRequest(0);
  request->Send({Started(), Token(1, "a"), Token(2, "b"), Token(3, "c")});
  request->Send({Token(4, "d"), Finished(FinishReason::kEosToken, 4)});
  const auto response = client.Read();
  REQUIRE(response->chunks.size() <= 2);
  CHECK(absl::StrContains(response->chunks[0], "\"c\""));
  CHECK(response->headers.at("content-type") == "text/event-stream");
  CHECK(response->headers.at("cache-control") == "no-cache");
  CHECK(response->headers.at("x-accel-buffering") == "no");
}

TEST_CASE("Connections over the limit get a 503", "[router][http]") {
  HttpServerOptions options;
  options.connections_max = 2;
  DoorsFixture fixture(options);
  RawClient one(fixture.port()), two(fixture.port());
  one.Send(GetText("/health"));
  two.Send(GetText("/health"));
  CHECK(one.Read()->status == 200);
  CHECK(two.Read()->status == 200);
  RawClient three(fixture.port());
  const auto response = three.Read();
  REQUIRE(response.has_value());
  CHECK(response->status == 503);
  CHECK(response->headers.at("retry-after") == "1");
}

TEST_CASE("A burst of connections is served to the last", "[router][http]") {
  // More than the workers are dealt before the listener waits for them, several times over.
  DoorsFixture fixture;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 300; ++i) clients.push_back(std::make_unique<RawClient>(fixture.port()));
  for (const auto& client : clients) {
    client->Send(GetText("/health"));
    CHECK(client->Read()->status == 200);
  }
}

TEST_CASE("A good x-request-id is kept and echoed, a bad one is replaced", "[router][http]") {
  DoorsFixture fixture;
  const std::string body = R"({"prompt":"Hi"})";
  RawResponse response =
      Fetch(fixture.port(), PostText("/v1/completions", body, "X-Request-Id: a.B_c-9\r\n"));
  CHECK(response.headers.at("x-request-id") == "a.B_c-9");
  CHECK(fixture.intake.WaitRequest(0)->input().correlation_id == "a.B_c-9");
  CHECK(absl::StrContains(response.body, R"("id":"cmpl-a.B_c-9")"));
  for (const std::string& bad : {std::string("a b"), std::string("ä"), std::string(129, 'a')}) {
    response = Fetch(fixture.port(), GetText("/health", "x-request-id: " + bad + "\r\n"));
    CHECK(response.headers.at("x-request-id").size() == 32);
  }
}

TEST_CASE("A server that drains refuses generations and closes connections", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient running(fixture.port());
  running.Send(PostText("/v1/completions", kStreamBody));
  const auto request = fixture.intake.WaitRequest(0);
  fixture.doors.StartDrain();
  fixture.server->StartDrain();
  CHECK_FALSE(fixture.server->WaitIdle(absl::Milliseconds(20)));
  const RawResponse refused = fixture.Post("/v1/chat/completions", "{}");
  CHECK(refused.status == 503);
  CHECK(refused.headers.at("retry-after") == "5");
  CHECK(refused.headers.at("connection") == "close");
  CHECK(absl::StrContains(refused.body, "draining"));
  CHECK(fixture.Get("/readyz").status == 503);
  CHECK(fixture.Get("/livez").status == 200);
  request->Send({Started(), Token(1, "x"), Finished(FinishReason::kLength, 1)});
  CHECK(absl::EndsWith(running.Read()->body, "data: [DONE]\n\n"));
  CHECK(fixture.server->WaitIdle(absl::Seconds(5)));
}

TEST_CASE("A server that stops tells requests in the making", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/v1/completions", kStreamBody));
  const auto request = fixture.intake.WaitRequest(0);
  fixture.server->Stop();
  CHECK(request->WaitCancelled() == CancelReason::kAdmin);
  CHECK(client.ReadToEnd() == "");
}

TEST_CASE("A port that is taken is an error that says what to do", "[router][http]") {
  DoorsFixture fixture;
  HttpServerOptions options;
  options.port = fixture.port();
  const auto second =
      HttpServer::Start(options, &fixture.routes, &fixture.admin_routes, &fixture.probe);
  REQUIRE_FALSE(second.ok());
  CHECK(absl::StrContains(second.status().message(), "choose another port, or 0"));
  options.host = "not-an-address";
  CHECK_FALSE(
      HttpServer::Start(options, &fixture.routes, &fixture.admin_routes, &fixture.probe).ok());
}

TEST_CASE("The admin port has the operations routes only", "[router][http]") {
  HttpServerOptions options;
  options.admin_port = 0;
  DoorsFixture fixture(options);
  REQUIRE(fixture.server->admin_port() != 0);
  CHECK(Fetch(fixture.server->admin_port(), GetText("/livez")).status == 200);
  CHECK(Fetch(fixture.server->admin_port(), PostText("/generate", "{}")).status == 404);
}

TEST_CASE("Many connections stream at the same time", "[router][http]") {
  HttpServerOptions options;
  options.io_threads = 3;
  DoorsFixture fixture(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<RawClient>(fixture.port()));
    clients.back()->Send(PostText("/v1/completions", kStreamBody));
  }
  for (const auto& client : clients) {
    const auto response = client->Read();
    REQUIRE(response.has_value());
    CHECK(absl::EndsWith(response->body, "data: [DONE]\n\n"));
  }
}

}  // namespace
}  // namespace weft::router

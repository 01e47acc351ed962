// What the head of a request is enough to refuse is refused before its body is read, asked for or
// charged to the budget of all bodies.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/doors/http/body_shares.h"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/keys.h"

namespace weft::router {
namespace {

constexpr char kGenerateBody[] = R"({"inputs":"Hi"})";

// A head that announces a body of `bytes`.
std::string Head(const std::string& line, size_t bytes, const std::string& headers = "") {
  return absl::StrCat(line, " HTTP/1.1\r\nhost: x\r\ncontent-length: ", bytes, "\r\n", headers,
                      "\r\n");
}

TEST_CASE("Strangers' bodies are not charged to the budget of all bodies", "[router][http]") {
  TestKeys keys;
  const std::string key = keys.Add("a");
  HttpServerOptions options;
  options.limits.body_bytes_max = 400'000;
  options.limits.bodies_bytes_max = 800'000;
  DoorsFixture fixture(options, keys.Load());
  std::vector<std::unique_ptr<RawClient>> strangers;
  for (int i = 0; i < 8; ++i) {
    strangers.push_back(std::make_unique<RawClient>(fixture.port()));
    strangers.back()->Send(Head("POST /generate", 400'000) + std::string(390'000, ' '));
  }
  const std::string body = kGenerateBody + std::string(300'000, ' ');
  CHECK(Fetch(fixture.port(), PostText("/generate", body, KeyHeader(key))).status == 200);
  for (const auto& stranger : strangers) {
    const auto response = stranger->Read();
    REQUIRE(response.has_value());
    CHECK(response->status == 401);
    CHECK(response->headers.at("connection") == "close");
    CHECK(response->headers.count("www-authenticate") == 1);
  }
}

TEST_CASE("A tenant's trickled bodies leave room for another's", "[router][http]") {
  TestKeys keys;
  const std::string dawdler = KeyHeader(keys.Add("a"));
  const std::string other = KeyHeader(keys.Add("b"));
  HttpServerOptions options;
  options.limits.body_bytes_max = 400'000;
  options.limits.bodies_bytes_max = 2'400'000;
  DoorsFixture fixture(options, keys.Load());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(fixture.port()));
    clients.back()->Send(Head("POST /generate", 400'000, dawdler) + std::string(390'000, ' '));
  }
  int refused = 0;
  for (const auto& client : clients) {
    if (!client->WaitReadable(200)) continue;
    CHECK(client->Read()->status == 503);
    ++refused;
  }
  CHECK(refused >= 5);
  const std::string body = kGenerateBody + std::string(300'000, ' ');
  CHECK(Fetch(fixture.port(), PostText("/generate", body, other)).status == 200);
}

TEST_CASE("A share is half, but one body alone is never refused", "[router][http]") {
  BodyShares shares(1'000'000);
  BodyShare one, two, small, stranger;
  for (BodyShare* share : {&one, &two, &small}) share->Begin(&shares, "a");
  stranger.Begin(&shares, "b");
  CHECK(one.GrowTo(700'000));
  CHECK_FALSE(two.GrowTo(100'000));
  CHECK(small.GrowTo(BodyBudget::kSmallBodyBytes));
  CHECK(stranger.GrowTo(500'000));
  one.Release();
  CHECK(two.GrowTo(100'000));
  one.Begin(&shares, "a");
  CHECK(one.GrowTo(400'000));
  CHECK_FALSE(one.GrowTo(400'001));
}

TEST_CASE("Path, method, type and key are refused by the head alone", "[router][http]") {
  TestKeys keys;
  const std::string key = KeyHeader(keys.Add("a"));
  const std::string expired = KeyHeader(keys.Add("b", {}, absl::UnixEpoch()));
  DoorsFixture fixture({}, keys.Load());
  const std::string text = "content-type: text/plain\r\n";
  struct Case {
    std::string line;
    std::string headers;
    int status;
  };
  const std::vector<Case> cases = {{"POST /nothing", key, 404},
                                   {"PUT /v1/nothing", key, 404},
                                   {"DELETE /generate", key, 405},
                                   {"POST /info", "", 405},
                                   {"HEAD /generate", key, 405},
                                   {"POST /generate", key + text, 415},
                                   {"POST /v1/completions", text, 415},
                                   {"POST /generate", key + "content-encoding: gzip\r\n", 415},
                                   {"POST /v1/completions", "content-encoding: br\r\n", 415},
                                   {"POST /nothing", "content-encoding: gzip\r\n", 404},
                                   {"POST /generate", "", 401},
                                   {"POST /tokenize", "x-api-key: nobody\r\n", 401},
                                   {"POST /v1/completions", expired, 401},
                                   {"GET /v1/models", "", 401}};
  for (const Case& one : cases) {
    for (const char* expect : {"", "expect: 100-continue\r\n"}) {
      INFO(one.line << " " << one.status << " " << expect);
      RawClient client(fixture.port());
      // No byte of the body is ever sent.
      client.Send(Head(one.line, 1000, absl::StrCat(one.headers, expect)));
      const auto response = client.Read(/*head=*/absl::StartsWith(one.line, "HEAD"));
      REQUIRE(response.has_value());
      CHECK(response->status == one.status);
      CHECK(response->headers.at("connection") == "close");
      CHECK(response->headers.count("allow") == (one.status == 405 ? 1 : 0));
      CHECK(client.WaitClosed());
    }
  }
  RawClient good(fixture.port());
  good.Send(Head("POST /generate", sizeof(kGenerateBody) - 1, key + "expect: 100-continue\r\n"));
  CHECK(good.Read()->status == 100);
  good.Send(kGenerateBody);
  CHECK(good.Read()->status == 200);
}

TEST_CASE("A compressed body is a 415 that names the header", "[router][http]") {
  DoorsFixture fixture;
  const auto post = [&](const std::string& path, const std::string& headers) {
    return Fetch(fixture.port(), PostText(path, kGenerateBody, headers));
  };
  for (const char* path : {"/", "/generate", "/generate_stream", "/invocations", "/tokenize",
                           "/chat_tokenize", "/v1/completions", "/v1/chat/completions"}) {
    for (const char* coding : {"content-encoding: gzip\r\n", "content-encoding: identity, br\r\n",
                               "content-encoding: identity\r\nContent-Encoding: deflate\r\n"}) {
      INFO(path << " " << coding);
      const RawResponse response = post(path, coding);
      CHECK(response.status == 415);
      CHECK(absl::StrContains(response.body, "`content-encoding`"));
      CHECK(response.headers.at("accept-encoding") == "identity");
    }
  }
  CHECK(fixture.intake.request_count() == 0);
  CHECK(post("/generate", "content-encoding: Identity\r\n").status == 200);
  CHECK(post("/generate", "content-encoding:\r\n").status == 200);
  CHECK(Fetch(fixture.port(), GetText("/health", "content-encoding: gzip\r\n")).status == 200);
}

TEST_CASE("A refused request that is here with its body keeps its connection", "[router][http]") {
  TestKeys keys;
  const std::string key = KeyHeader(keys.Add("a"));
  DoorsFixture fixture({}, keys.Load());
  RawClient client(fixture.port());
  client.Send(PostText("/generate", kGenerateBody, "x-request-id: mine\r\n") +
              PostText("/nothing", kGenerateBody, key) +
              PostText("/generate", "", key + "a: b\r\n") +
              PostText("/generate", kGenerateBody, key));
  const auto refused = client.Read();
  REQUIRE(refused.has_value());
  CHECK(refused->status == 401);
  CHECK(refused->headers.at("x-request-id") == "mine");
  CHECK(client.Read()->status == 404);
  CHECK(client.Read()->status == 422);
  CHECK(client.Read()->status == 200);
}

TEST_CASE("A refusal by the key speaks as its route does and is counted once", "[router][http]") {
  TestKeys keys;
  keys.Add("a");
  DoorsFixture fixture({}, keys.Load());
  // All probes of this process count together.
  const auto count = [&](absl::string_view series) {
    const std::string text = fixture.probe.Render();
    const size_t at = text.find(std::string(series));
    return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + series.size());
  };
  constexpr absl::string_view kRefused = "weft_admission_rejections_total{reason=\"identity\"} ";
  constexpr absl::string_view kRoute =
      "weft_http_requests_total{code=\"401\",route=\"/v1/completions\"} ";
  const int refused = count(kRefused);
  const int of_route = count(kRoute);
  CHECK(absl::StrContains(fixture.Post("/generate", kGenerateBody).body,
                          R"("error_type":"authentication")"));
  CHECK(absl::StrContains(fixture.Post("/v1/completions", R"({"prompt":"Hi"})").body,
                          R"("code":"invalid_api_key")"));
  CHECK(absl::StrContains(fixture.Get("/v1/models/x").body, R"("code":"invalid_api_key")"));
  CHECK(fixture.Get("/health").status == 200);
  CHECK(count(kRefused) == refused + 3);
  CHECK(count(kRoute) == of_route + 1);
}

}  // namespace
}  // namespace weft::router

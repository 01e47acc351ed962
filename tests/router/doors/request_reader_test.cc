// Reading requests by themselves: what RFC 9112 refuses, what it allows, however the bytes are cut.

#include "router/doors/http/request_reader.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/doors/http/buffers.h"
#include "tests/router/doors/http_forms.h"

namespace weft::router {
namespace {

constexpr RequestReader::Limits kLimits = {16384, 1u << 20};

struct Outcome {
  int requests = 0;
  int refused = 0;  // the status
  std::vector<std::string> bodies;
  std::vector<std::string> paths;

  bool operator==(const Outcome&) const = default;
};

// Feeds `text` in pieces of `piece` bytes.
Outcome ReadAll(const std::string& text, size_t piece) {
  RequestReader reader(kLimits, std::make_shared<BodyBudget>(64u << 20));
  Outcome outcome;
  std::string held;
  for (size_t at = 0; at < text.size(); at += piece) {
    held += text.substr(at, piece);
    absl::string_view input = held;
    for (bool more = true; more;) {
      switch (reader.Next(&input)) {
        case RequestReader::Event::kMore:
          more = false;
          break;
        case RequestReader::Event::kHead:
          break;
        case RequestReader::Event::kRequest:
          ++outcome.requests;
          outcome.paths.push_back(reader.head().path);
          outcome.bodies.push_back(reader.TakeBody());
          reader.Begin();
          break;
        case RequestReader::Event::kRefused:
          outcome.refused = reader.refusal().status;
          return outcome;
      }
    }
    held = std::string(input);
  }
  return outcome;
}

TEST_CASE("Forms that two parsers could read differently are refused, however they are cut",
          "[router][http]") {
  for (const HttpForm& form : SmugglingForms()) {
    INFO(form.what);
    const Outcome whole = ReadAll(form.bytes, form.bytes.size());
    CHECK(whole.refused == 400);
    CHECK(whole.requests == 0);
    CHECK(ReadAll(form.bytes, 1) == whole);
    CHECK(ReadAll(form.bytes, 7) == whole);
  }
}

TEST_CASE("Forms that RFC 9112 allows are read, however they are cut", "[router][http]") {
  for (const HttpForm& form : GoodForms()) {
    INFO(form.what);
    const Outcome whole = ReadAll(form.bytes, form.bytes.size());
    CHECK(whole.refused == 0);
    CHECK(whole.requests == 1);
    CHECK(ReadAll(form.bytes, 1) == whole);
    CHECK(ReadAll(form.bytes, 3) == whole);
  }
}

TEST_CASE("Absolute targets, queries and the asterisk become paths", "[router][http]") {
  const auto path = [](const std::string& line) {
    const Outcome outcome = ReadAll(line + "\r\nhost: x\r\n\r\n", 1000);
    return outcome.paths.empty() ? absl::StrCat(outcome.refused) : outcome.paths[0];
  };
  CHECK(path("GET http://a.example:80/health?x=%20y HTTP/1.1") == "/health");
  CHECK(path("GET HTTPS://[::1]:443 HTTP/1.1") == "/");
  CHECK(path("GET /v1/models/a%2Fb HTTP/1.1") == "/v1/models/a%2Fb");
  CHECK(path("OPTIONS * HTTP/1.1") == "*");
  CHECK(path("CONNECT a.example:443 HTTP/1.1") == "501");
  CHECK(path("GET / HTTP/2.0") == "505");
}

TEST_CASE("A chunked body loses its framing, extensions and trailers", "[router][http]") {
  const std::string text =
      "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: Chunked\r\n\r\n"
      "5;name=value;other=\"a;\\\"b\"\r\nhello\r\n006 ; x\r\n world\r\n0\r\nx-sum: 1\r\n\r\n"
      "GET /next HTTP/1.1\r\nhost: x\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{5}, text.size()}) {
    const Outcome outcome = ReadAll(text, piece);
    CHECK(outcome.bodies == std::vector<std::string>{"hello world", ""});
    CHECK(outcome.paths == std::vector<std::string>{"/", "/next"});
  }
}

TEST_CASE("Heads, bodies, extensions and trailers have their limits", "[router][http]") {
  const std::string head = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
  CHECK(ReadAll("GET / HTTP/1.1\r\nx: " + std::string(20000, 'a'), 1000).refused == 431);
  CHECK(ReadAll("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1048577\r\n\r\n", 100).refused ==
        413);
  CHECK(ReadAll(head + "100001\r\n" + std::string(1048577, 'a'), 65536).refused == 413);
  // What a chunk announces is refused before a byte of it has come, whatever its number of digits.
  for (const char* size : {"100001", "fffffffffffffff", "ffffffffffffffff", "10000000000000000",
                           "fffffffffffffffffffffffffffffffff", "5\r\nhello\r\nffffc"}) {
    INFO(size);
    CHECK(ReadAll(absl::StrCat(head, size, "\r\n"), 1).refused == 413);
  }
  CHECK(ReadAll(head + "5\r\nhello\r\nffffb\r\n", 7).refused == 0);
  CHECK(ReadAll(head + std::string(900, '0') + "5\r\nhello\r\n0\r\n\r\n", 7).requests == 1);
  CHECK(ReadAll("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999999999999999\r\n\r\n", 100)
            .refused == 413);
  CHECK(ReadAll(head + "1;" + std::string(2000, 'a') + "\r\nx\r\n", 100).refused == 400);
  std::string extensions = head;
  for (int i = 0; i < 20; ++i) extensions += "1;" + std::string(900, 'a') + "\r\nx\r\n";
  CHECK(ReadAll(extensions, 100).refused == 400);
  std::string trailers = head + "0\r\n";
  for (int i = 0; i < 20; ++i) trailers += "x: " + std::string(900, 'a') + "\r\n";
  CHECK(ReadAll(trailers, 100).refused == 400);
}

TEST_CASE("A body holds what it has got of the budget, until its charge goes", "[router][http]") {
  auto budget = std::make_shared<BodyBudget>(256u << 10);
  RequestReader reader(kLimits, budget);
  const std::string head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
  absl::string_view input = head;
  REQUIRE(reader.Next(&input) == RequestReader::Event::kHead);
  CHECK(budget->used() == 0);  // what is announced costs nothing
  const std::string part(60000, 'x');
  input = part;
  REQUIRE(reader.Next(&input) == RequestReader::Event::kMore);
  CHECK(budget->used() >= 60000);
  CHECK(budget->used() <= 120000);
  const std::string rest(40000, 'x');
  input = rest;
  REQUIRE(reader.Next(&input) == RequestReader::Event::kRequest);
  {
    const BodyCharge charge = reader.TakeCharge();
    const std::string body = reader.TakeBody();
    reader.Begin();
    CHECK(body.size() == 100000);
    CHECK(budget->used() >= body.size());
  }
  CHECK(budget->used() == 0);
}

TEST_CASE("A buffer that is given back holds nothing", "[router][http]") {
  std::string buffer(100000, 'x');
  GiveBack(&buffer);
  CHECK(buffer.capacity() < 100);
}

TEST_CASE("A spent budget refuses with a time to come back, small bodies last", "[router][http]") {
  auto budget = std::make_shared<BodyBudget>(1u << 20);
  BodyCharge others(budget);
  REQUIRE(others.GrowTo(3u << 18));  // three quarters
  const auto post = [&](size_t bytes, HttpRefusal* refusal) {
    RequestReader reader(kLimits, budget);
    const std::string text = absl::StrCat("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ", bytes,
                                          "\r\n\r\n", std::string(bytes, 'x'));
    absl::string_view input = text;
    RequestReader::Event event = reader.Next(&input);
    while (event == RequestReader::Event::kHead) event = reader.Next(&input);
    *refusal = reader.refusal();
    return event;
  };
  HttpRefusal refusal;
  CHECK(post(100000, &refusal) == RequestReader::Event::kRefused);
  CHECK(refusal.status == 503);
  CHECK(refusal.retry_after_s == 1);
  CHECK(post(10000, &refusal) == RequestReader::Event::kRequest);
  REQUIRE(others.GrowTo((1u << 20) - 4096) == false);  // a large body stops at its share
  CHECK(budget->used() == 3u << 18);
}

}  // namespace
}  // namespace weft::router

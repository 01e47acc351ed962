// What the preflights of web pages are granted.

#include "router/doors/http/origin.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/http_forms.h"

namespace weft::router {
namespace {

TEST_CASE("A preflight grants the headers of OpenAI's client by name, and no other",
          "[router][http]") {
  const auto granted = [](const std::string& asked) {
    HttpHeaders headers;
    OriginPolicy::AddPreflight("POST", asked, &headers);
    return std::vector<std::string>(absl::StrSplit(headers.at(1).second, ", "));
  };
  const std::vector<std::string> always = granted("");
  CHECK(always.size() == 5);
  const std::vector<std::string> some =
      granted("authorization,X-Stainless-OS, x-stainless-retry-count ,x-evil,x-stainless-a\x01b");
  CHECK(std::vector<std::string>(some.begin() + 5, some.end()) ==
        std::vector<std::string>{"x-stainless-os", "x-stainless-retry-count"});
  CHECK(granted(absl::StrCat("x-stainless-", std::string(60, 'a'))).size() == 5);
  std::string many;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&many, "x-stainless-", i, ",");
  CHECK(granted(many).size() == 5 + 32);

  HttpServerOptions options;
  options.cors_origins = {"*"};
  DoorsFixture fixture(options);
  const RawResponse answer =
      Fetch(fixture.port(),
            "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: x\r\norigin: https://a.example\r\n"
            "access-control-request-method: POST\r\n"
            "access-control-request-headers: authorization,x-stainless-lang\r\n\r\n");
  CHECK(absl::StrContains(answer.headers.at("access-control-allow-headers"), "x-stainless-lang"));
}

TEST_CASE("An origin is a scheme, a host and perhaps a port, and nothing else", "[router][http]") {
  for (const char* good : {"*", "https://chat.example", "http://localhost:3000",
                           "http://[::1]:8080", "app://weft", "http://10.0.0.5.nip.io:3000"}) {
    INFO(good);
    CHECK(ParseOrigin(good).value_or("") == good);
  }
  // Browsers leave a scheme's own port out.
  CHECK(*ParseOrigin("https://chat.example:443") == "https://chat.example");
  CHECK(*ParseOrigin("http://chat.example:80") == "http://chat.example");
  CHECK(*ParseOrigin("http://chat.example:443") == "http://chat.example:443");
  const struct {
    const char* text;
    const char* want;
  } cases[] = {{"http://a/b", "has a path"},
               {"http://a/", "has a path"},
               {"http://a?x", "has a query"},
               {"http://a#x", "a fragment"},
               {"http://me@a", "names a user"},
               {"http://me:pw@a", "names a user"},
               {"chat.example", "has no scheme"},
               {"//chat.example", "has no scheme"},
               {"chat.example:3000", "has no"},
               {"https://", "or no host"},
               {"", "has no scheme"},
               {"null", "has no scheme"},
               {"https://*.example/", "has a path"},
               {"http://a:99999", "has a port beyond"},
               {"https://*.a.com", "has a pattern in its host"},
               {"a://b", "has a scheme that no page has: they have http, https, app"},
               {"http://a:0", "has a port beyond"},
               {"http://a b", "has no scheme"}};
  for (const auto& c : cases) {
    const absl::Status status = ParseOrigin(c.text).status();
    INFO(c.text << ": " << status);
    CHECK(absl::StrContains(status.message(), c.want));
    CHECK(absl::StrContains(status.message(), "an origin is scheme://host"));
  }
}

TEST_CASE("A page is this server's own by address, or by a name that TLS vouches for",
          "[router][http]") {
  const struct {
    const char* origin;
    const char* host;
    const char* port;
    bool tls;
    OriginOwner want;
  } cases[] = {
      {"http://127.0.0.1:8080", "127.0.0.1", "8080", false, OriginOwner::kOwn},
      {"http://localhost:8080", "LOCALHOST", "8080", false, OriginOwner::kOwn},
      {"http://[::1]:8080", "[::1]", "8080", false, OriginOwner::kOwn},
      {"http://10.0.0.5", "10.0.0.5", "", false, OriginOwner::kOwn},
      {"http://10.0.0.5", "10.0.0.5", "80", false, OriginOwner::kOwn},
      // Behind a proxy that ends TLS.
      {"https://10.0.0.5", "10.0.0.5", "", false, OriginOwner::kOwn},
      {"https://chat.example", "chat.example", "", true, OriginOwner::kOwn},
      {"https://chat.example:8443", "Chat.Example", "8443", true, OriginOwner::kOwn},
      // Whose name it is nobody knows in clear: a page may have given its own this server's
      // address.
      {"http://evil.example:8080", "evil.example", "8080", false, OriginOwner::kOwnByNameAlone},
      {"https://chat.example", "chat.example", "", false, OriginOwner::kOwnByNameAlone},
      {"http://localhost.evil.example", "localhost.evil.example", "", false,
       OriginOwner::kOwnByNameAlone},
      {"http://127.0.0.1.evil.example", "127.0.0.1.evil.example", "", false,
       OriginOwner::kOwnByNameAlone},
      // Another server of the same host, another scheme, no page of the web.
      {"http://127.0.0.1:3000", "127.0.0.1", "8080", false, OriginOwner::kOther},
      {"http://127.0.0.1", "127.0.0.1", "8080", false, OriginOwner::kOther},
      {"http://127.0.0.1:8080", "127.0.0.1", "", false, OriginOwner::kOther},
      {"http://localhost:8080", "127.0.0.1", "8080", false, OriginOwner::kOther},
      {"https://10.0.0.5", "10.0.0.5", "80", false, OriginOwner::kOther},
      {"http://chat.example", "chat.example", "", true, OriginOwner::kOther},
      {"http://evil.example", "127.0.0.1", "", false, OriginOwner::kOther},
      {"null", "127.0.0.1", "", false, OriginOwner::kOther},
      {"http://127.0.0.1:8080/x", "127.0.0.1", "8080", false, OriginOwner::kOther},
      {"http://me@127.0.0.1:8080", "127.0.0.1", "8080", false, OriginOwner::kOther},
      {"file://127.0.0.1:8080", "127.0.0.1", "8080", false, OriginOwner::kOther},
      {"http://", "", "", false, OriginOwner::kOther},
      {"http://127.0.0.1:8080", "", "", false, OriginOwner::kOther}};
  for (const auto& c : cases) {
    INFO(c.origin << " at " << c.host << ":" << c.port << (c.tls ? " over TLS" : ""));
    CHECK(OwnOrigin(c.origin, c.host, c.port, c.tls) == c.want);
  }
}

TEST_CASE("The own page may call without a list, and nobody else", "[router][http]") {
  HttpServerOptions options;
  options.own_page = true;
  options.admin_port = 0;
  DoorsFixture fixture(options);
  const auto post = [](uint16_t port, const std::string& host, const std::string& origin) {
    const std::string body = R"({"inputs":"Hi"})";
    return Fetch(port,
                 absl::StrCat("POST /generate HTTP/1.1\r\nhost: ", host, "\r\norigin: ", origin,
                              "\r\ncontent-type: application/json\r\ncontent-length: ", body.size(),
                              "\r\n\r\n", body));
  };
  const RawResponse own = post(fixture.port(), "127.0.0.1:8080", "http://127.0.0.1:8080");
  CHECK(own.status == 200);
  // It reads its own server's answers without leave, and no other page gets any.
  CHECK(own.headers.count("access-control-allow-origin") == 0);
  const RawResponse rebound = post(fixture.port(), "evil.example:8080", "http://evil.example:8080");
  CHECK(rebound.status == 403);
  CHECK(absl::StrContains(rebound.body, "--cors-origins=http://evil.example:8080"));
  const auto get = [&](const std::string& origin) {
    return Fetch(fixture.port(), absl::StrCat("GET /info HTTP/1.1\r\nhost: evil.example:8080\r\n",
                                              "origin: ", origin, "\r\n\r\n"));
  };
  // Its reads come without an Origin, too; those of others are refused.
  CHECK(get("http://evil.example:8080").status == 200);
  CHECK(get("http://evil.example:8080").headers.count("access-control-allow-origin") == 0);
  CHECK(get("http://other.example").status == 403);
  CHECK(post(fixture.port(), "127.0.0.1:8080", "http://127.0.0.1:3000").status == 403);
  CHECK(post(fixture.port(), "127.0.0.1:8080", "http://evil.example").status == 403);
  // The target's name goes before Host, as everywhere.
  CHECK(Fetch(fixture.port(),
              "POST http://evil.example:1/generate HTTP/1.1\r\nhost: 127.0.0.1:1\r\norigin: "
              "http://127.0.0.1:1\r\ncontent-length: 0\r\n\r\n")
            .status == 403);
  // The admin port shows no page.
  CHECK(post(fixture.server->admin_port(), "127.0.0.1:8080", "http://127.0.0.1:8080").status ==
        403);
  CHECK(fixture.intake.request_count() == 1);
  // Nor does a server whose page is off.
  DoorsFixture off;
  CHECK(post(off.port(), "127.0.0.1:8080", "http://127.0.0.1:8080").status == 403);
  CHECK(off.intake.request_count() == 0);
}

}  // namespace
}  // namespace weft::router

// Under which names of this server its configuration is shown and its prefix cache flushed.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/doors/http/request_head.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

TEST_CASE("Addresses and localhost are told from names", "[router][http]") {
  for (const char* host :
       {"localhost", "LocalHost", "127.0.0.1", "10.1.2.3", "[::1]", "[fe80::1]"}) {
    INFO(host);
    CHECK(IsLocalhostOrAddress(host));
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                           "weft", "127.1", "0x7f000001", "notlocalhost", "evil@127.0.0.1"}) {
    INFO(host);
    CHECK_FALSE(IsLocalhostOrAddress(host));
  }
}

TEST_CASE("The configuration is shown under addresses, other routes under every name",
          "[router][http]") {
  HttpServerOptions options;
  options.admin_port = 0;
  DoorsFixture fixture(options);
  const auto get = [&](const std::string& target, const std::string& host) {
    return Fetch(fixture.server->admin_port(),
                 absl::StrCat("GET ", target, " HTTP/1.1\r\nhost: ", host, "\r\n\r\n"));
  };
  for (const char* host : {"127.0.0.1", "127.0.0.1:9090", "localhost:9090", "[::1]:9090"}) {
    INFO(host);
    CHECK(get("/config", host).status == 200);
  }
  for (const char* host : {"evil.example", "evil.example:9090", "weft.svc.cluster.local",
                           "evil%40127.0.0.1", "127.0.0.%31", "%6cocalhost"}) {
    INFO(host);
    const RawResponse refused = get("/config", host);
    CHECK(refused.status == 421);
    CHECK(absl::StrContains(refused.body, "localhost"));
    CHECK(absl::StrContains(refused.body, "IP address"));
    for (const char* path : {"/metrics", "/livez", "/version"}) {
      CHECK(get(path, host).status == 200);
    }
  }
  // A target's own name goes before Host.
  CHECK(get("http://evil.example/config", "127.0.0.1").status == 421);
  CHECK(get("http://127.0.0.1:1/config", "evil.example").status == 200);
  CHECK(Fetch(fixture.server->admin_port(), "GET /config HTTP/1.0\r\n\r\n").status == 200);
}

TEST_CASE("The prefix cache is flushed on the admin port alone, under addresses alone",
          "[router][http]") {
  HttpServerOptions options;
  options.admin_port = 0;
  DoorsFixture fixture(options);
  const auto ask = [&](uint16_t port, const std::string& line, const std::string& host) {
    return Fetch(port,
                 absl::StrCat(line, " HTTP/1.1\r\nhost: ", host, "\r\ncontent-length: 0\r\n\r\n"));
  };
  const uint16_t admin = fixture.server->admin_port();
  int flushes = 0;
  for (const char* line : {"POST /flush_cache", "POST /reset_prefix_cache"}) {
    INFO(line);
    const RawResponse done = ask(admin, line, "127.0.0.1");
    CHECK(done.status == 200);
    CHECK(done.body == R"({"success":true})");
    CHECK(fixture.flushes == ++flushes);
    const RawResponse refused = ask(admin, line, "evil.example");
    CHECK(refused.status == 421);
    CHECK(absl::StrContains(refused.body, "the prefix cache is flushed under an IP address"));
    CHECK(ask(fixture.port(), line, "127.0.0.1").status == 404);
    CHECK(fixture.flushes == flushes);
  }
  fixture.flush_status = absl::UnavailableError("later");
  const RawResponse later = ask(admin, "POST /flush_cache", "localhost");
  CHECK(later.status == 503);
  CHECK(later.body == R"({"error":"later","error_type":"unavailable"})");
  // No page can have a browser flush it: a GET would need no leave.
  CHECK(ask(admin, "GET /flush_cache", "localhost").status == 405);
  CHECK(ask(admin, "GET /reset_prefix_cache", "localhost").status == 405);
}

}  // namespace
}  // namespace weft::router

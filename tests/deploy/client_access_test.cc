#include "deploy/launcher/client_access.h"

#include <stdlib.h>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

constexpr char kPem[] = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

TEST_CASE("An address may be a URL, whose scheme says whether TLS is spoken", "[launcher]") {
  unsetenv(kApiKeyVariable);
  const test::TempDir dir;
  const std::string ca = dir.Write("ca.crt", kPem);
  const struct {
    const char* connect;
    bool flag;
    const char* address;
    bool tls;
  } cases[] = {{"127.0.0.1:8081", false, "127.0.0.1:8081", false},
               {"a.example:8081", true, "a.example:8081", true},
               {"https://a.example:8081", false, "a.example:8081", true},
               {"https://a.example/", false, "a.example:443", true},
               {"https://[::1]:8081", true, "[::1]:8081", true},
               {"https://[::1]", false, "[::1]:443", true},
               {"http://a.example", false, "a.example:80", false}};
  for (const auto& c : cases) {
    INFO(c.connect);
    const auto access = ResolveAccess({c.connect, c.flag, c.tls ? ca : "", ""});
    REQUIRE(access.ok());
    CHECK(access->address == c.address);
    CHECK(access->tls == c.tls);
    CHECK(access->authorities == (c.tls ? kPem : ""));
    CHECK(access->api_key.empty());
  }
}

TEST_CASE("A key comes from a file or the environment, and is sent as it was made", "[launcher]") {
  const test::TempDir dir;
  const std::string file = dir.Write("key", " weft-abc\n");
  setenv(kApiKeyVariable, "weft-other", 1);
  CHECK(ResolveAccess({"a:1", false, "", file})->api_key == "weft-abc");
  CHECK(ResolveAccess({"a:1", false, "", ""})->api_key == "weft-other");
  setenv(kApiKeyVariable, "", 1);
  CHECK(ResolveAccess({"a:1", false, "", ""})->api_key.empty());
  setenv(kApiKeyVariable, "two words", 1);
  CHECK(absl::StrContains(ResolveAccess({"a:1", false, "", ""}).status().message(),
                          "WEFT_API_KEY: expected one key"));
  unsetenv(kApiKeyVariable);
}

TEST_CASE("What cannot be reached so is refused by flag", "[launcher]") {
  unsetenv(kApiKeyVariable);
  const test::TempDir dir;
  const std::string empty = dir.Write("empty", "\n");
  const struct {
    AccessFlags flags;
    const char* want;
  } cases[] = {{{"127.0.0.1", false, "", ""}, "--connect: 127.0.0.1 lacks the port"},
               {{"https://a/v1", false, "", ""}, "has a path"},
               {{"http://a", true, "", ""}, "--tls: the address of --connect begins with http://"},
               {{"a:1", false, empty, ""}, "--ca: goes with --tls"},
               {{"a:1", true, empty, ""}, "holds no certificate in PEM"},
               {{"a:1", true, "/no/such/ca", ""}, "--ca: /no/such/ca"},
               {{"a:1", false, "", "/no/such/key"}, "--api-key-file: /no/such/key"},
               {{"a:1", false, "", empty}, "expected one key"}};
  for (const auto& c : cases) {
    const absl::Status status = ResolveAccess(c.flags).status();
    INFO(status);
    CHECK(absl::StrContains(status.message(), c.want));
  }
}

}  // namespace
}  // namespace weft::launcher

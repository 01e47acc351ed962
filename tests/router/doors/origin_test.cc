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

}  // namespace
}  // namespace weft::router

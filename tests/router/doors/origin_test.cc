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

}  // namespace
}  // namespace weft::router

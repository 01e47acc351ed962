#include "router/doors/identity/open_address.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace weft::router {
namespace {

TEST_CASE("Loopback addresses are told from those that others can reach", "[router][identity]") {
  for (const absl::string_view host :
       {"127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"}) {
    INFO(host);
    CHECK(IsLoopback(host));
  }
  for (const absl::string_view host :
       {"", "0.0.0.0", "::", "[::]", "10.0.0.1", "128.0.0.1", "localhost.example.org",
        "example.org", "127.0.0.1.nip.io", "::ffff:10.0.0.1"}) {
    INFO(host);
    CHECK_FALSE(IsLoopback(host));
  }
}

TEST_CASE("An open address without keys or TLS is warned of by name", "[router][identity]") {
  CHECK(OpenAddressWarning("127.0.0.1", false, false).empty());
  CHECK(OpenAddressWarning("0.0.0.0", true, true).empty());
  const std::string neither = OpenAddressWarning("0.0.0.0", false, false);
  CHECK(absl::StrContains(neither, "0.0.0.0"));
  CHECK(absl::StrContains(neither, "neither keys nor TLS"));
  CHECK(absl::StrContains(OpenAddressWarning("::", true, false), "without TLS"));
  CHECK(absl::StrContains(OpenAddressWarning("", false, true), "without keys"));
}

}  // namespace
}  // namespace weft::router

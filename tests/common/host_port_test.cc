#include "common/host_port.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

TEST_CASE("An IPv6 address stands in brackets before its port, once", "[common]") {
  CHECK(HostPort("127.0.0.1", 80) == "127.0.0.1:80");
  CHECK(HostPort("localhost", 0) == "localhost:0");
  CHECK(HostPort("::1", 8081) == "[::1]:8081");
  CHECK(HostPort("[::1]", 8081) == "[::1]:8081");
  CHECK(WithoutBrackets("[::]") == "::");
  CHECK(WithoutBrackets("0.0.0.0") == "0.0.0.0");
}

}  // namespace
}  // namespace weft

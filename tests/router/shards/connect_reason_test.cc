// What people are told of a shard that cannot be reached.

#include "router/shards/connect_reason.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"

namespace weft::router {
namespace {

TEST_CASE("A connection that does not come about says what broke and the way out",
          "[router][shards]") {
  const std::string refused = NoConnection(
      "shard-1:7000",
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.5:7000: Failed to "
      "connect to remote host: Connection refused");
  CHECK(refused ==
        "no connection: shard-1:7000: ipv4:10.0.0.5:7000: Failed to connect to remote host: "
        "Connection refused; nobody listens there: does the shard run, and with this port?");
  const auto tells = [](const char* why, const char* way_out) {
    return absl::StrContains(NoConnection("a:1", why), way_out);
  };
  CHECK(tells("x: Peer name shard-1 is not in peer certificate", "give it one with this name"));
  CHECK(tells("x: Ssl handshake failed: certificate verify failed", "--shard-tls-ca"));
  CHECK(tells("UNAVAILABLE: x: Socket closed", "its --tls-ca must have signed --shard-tls-cert"));
  CHECK(tells("DNS resolution failed for a:1: Domain name not found", "nobody knows this name"));
  CHECK(tells("DNS resolution failed for a:1: Timeout", "does the name server answer"));
  // What is not known, and what has not been heard of yet.
  CHECK(tells("x: No route to host", "firewall"));
  CHECK(NoConnection("a:1", "").find("no connection: a:1 does not answer; is its host up") == 0);
}

TEST_CASE("A look-up that failed is told from other failures", "[router][shards]") {
  CHECK(IsLookupFailure("DNS resolution failed for a:1: Domain name not found"));
  CHECK_FALSE(IsLookupFailure("failed to connect to all addresses; last error: x"));
  CHECK_FALSE(IsLookupFailure(""));
}

}  // namespace
}  // namespace weft::router
